#include "packet_loss.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cstdint>
#include <thread>
#include <utility>

namespace tilewise::testing {
namespace {

int bpf(bpf_cmd command, bpf_attr& attributes) {
  return static_cast<int>(::syscall(SYS_bpf, command, &attributes, sizeof attributes));
}

// if (random_u32() < threshold) drop; else pass
int load(std::uint32_t threshold) {
  const auto code = [](int opcode, std::uint8_t to, std::int16_t jump, std::uint32_t value) {
    bpf_insn insn{};
    insn.code = static_cast<std::uint8_t>(opcode);
    insn.dst_reg = to;
    insn.off = jump;
    insn.imm = static_cast<std::int32_t>(value);
    return insn;
  };
  const bpf_insn program[] = {code(BPF_JMP | BPF_CALL, 0, 0, BPF_FUNC_get_prandom_u32),
                              code(BPF_JMP32 | BPF_JLT | BPF_K, BPF_REG_0, 2, threshold),
                              code(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, XDP_PASS),
                              code(BPF_JMP | BPF_EXIT, 0, 0, 0),
                              code(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, XDP_DROP),
                              code(BPF_JMP | BPF_EXIT, 0, 0, 0)};
  bpf_attr load{};
  load.prog_type = BPF_PROG_TYPE_XDP;
  load.expected_attach_type = BPF_XDP;
  load.insns = reinterpret_cast<std::uintptr_t>(program);
  load.insn_cnt = std::size(program);
  load.license = reinterpret_cast<std::uintptr_t>("Apache-2.0");
  return bpf(BPF_PROG_LOAD, load);
}

int attach(int program, const std::string& interface) {
  bpf_attr link{};
  link.link_create.prog_fd = static_cast<std::uint32_t>(program);
  link.link_create.target_ifindex = ::if_nametoindex(interface.c_str());
  link.link_create.attach_type = BPF_XDP;
  link.link_create.flags = XDP_FLAGS_SKB_MODE;  // for interfaces of any kind
  return bpf(BPF_LINK_CREATE, link);
}

bool enter(const std::string& network_namespace) {
  const int space = ::open(("/run/netns/" + network_namespace).c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = space >= 0 && ::setns(space, CLONE_NEWNET) == 0;
  ::close(space);
  return entered;
}

}  // namespace

PacketLoss PacketLoss::at(const std::string& interface, const std::string& network_namespace, double share) {
  const int program = load(static_cast<std::uint32_t>(share * 4294967295.0));
  if (program < 0) return {};
  int link = -1;
  // An interface is looked for where the thread is that asks.
  std::thread([&] {
    if (network_namespace.empty() || enter(network_namespace)) link = attach(program, interface);
  }).join();
  ::close(program);  // the link keeps it
  return PacketLoss(link);
}

PacketLoss::PacketLoss(PacketLoss&& other) noexcept : link_(std::exchange(other.link_, -1)) {}

PacketLoss& PacketLoss::operator=(PacketLoss&& other) noexcept {
  if (this == &other) return *this;
  if (link_ >= 0) ::close(link_);
  link_ = std::exchange(other.link_, -1);
  return *this;
}

PacketLoss::~PacketLoss() {
  if (link_ >= 0) ::close(link_);
}

}  // namespace tilewise::testing
