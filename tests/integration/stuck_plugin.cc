// A plug-in whose thread that gets SIGUSR2 never returns from it, as from a call into a driver that hangs.
#include <tilewise/kernels/plugin_abi.h>

#include <unistd.h>
#include <csignal>

namespace {

[[maybe_unused]] const auto kBefore = std::signal(SIGUSR2, [](int) {
  while (true) pause();
});

const tilewise_plugin_v1 kPlugin = {TILEWISE_PLUGIN_ABI, "stuck", "1.0", 0, nullptr};

}  // namespace

extern "C" const tilewise_plugin_v1* tilewise_plugin() { return &kPlugin; }
