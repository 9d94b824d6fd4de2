#include <tilewise/base/digest.h>
#include <tilewise/base/limits.h>
#include <tilewise/kernels/plugin.h>

#include <dlfcn.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

namespace tilewise::kernels {
namespace {

bool named(const char* name) {
  return name != nullptr && *name != '\0' && std::strlen(name) <= limits::kMaxNameBytes;
}

Result<std::uint64_t> hash_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return error(Errc::kNotFound, "plug-in " + path + " cannot be read");
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Digest digest;
  digest.mix(std::string_view(bytes));
  return digest.value();
}

Status well_formed(const tilewise_plugin_v1& plugin) {
  if (plugin.abi != TILEWISE_PLUGIN_ABI) {
    return error(Errc::kVersionMismatch, "a plug-in of ABI " + std::to_string(plugin.abi) + "; this is ABI " +
                                             std::to_string(TILEWISE_PLUGIN_ABI));
  }
  if (!named(plugin.name) || plugin.version == nullptr ||
      std::strlen(plugin.version) > limits::kMaxNameBytes) {
    return error(Errc::kInvalidArgument, "a plug-in without a name or version");
  }
  if (plugin.kernel_count < 0 || (plugin.kernel_count > 0 && plugin.kernels == nullptr)) {
    return error(Errc::kInvalidArgument, std::string("plug-in ") + plugin.name + " has a broken kernel list");
  }
  std::set<std::string> seen;
  for (int i = 0; i < plugin.kernel_count; ++i) {
    if (!named(plugin.kernels[i].name)) {
      return error(Errc::kInvalidArgument,
                   std::string("plug-in ") + plugin.name + " has a kernel without a name");
    }
    if (!seen.insert(plugin.kernels[i].name).second) {
      return error(Errc::kAlreadyExists,
                   std::string("plug-in ") + plugin.name + " has two kernels " + plugin.kernels[i].name);
    }
  }
  return {};
}

}  // namespace

struct PluginTable::Library {
  explicit Library(void* h) : handle(h) {}
  ~Library() { dlclose(handle); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  void* handle;
};

PluginTable::PluginTable() = default;
PluginTable::~PluginTable() = default;

Status PluginTable::register_plugin(const tilewise_plugin_v1& plugin, std::uint64_t hash) {
  TW_TRY(well_formed(plugin));
  for (const Entry& entry : entries_) {
    if (entry.name == plugin.name)
      return error(Errc::kAlreadyExists, "plug-in " + entry.name + " is already loaded");
  }
  Entry entry{plugin.name, plugin.version, hash, {}};
  for (int i = 0; i < plugin.kernel_count; ++i) {
    const auto taken = kernels_.find(plugin.kernels[i].name);
    if (taken != kernels_.end()) {
      return error(Errc::kAlreadyExists, "kernel " + taken->first + " of plug-in " + entry.name +
                                             " is already brought by " + entries_[taken->second.entry].name);
    }
    entry.kernels.push_back(plugin.kernels[i].name);
  }
  for (int i = 0; i < plugin.kernel_count; ++i) {
    kernels_.emplace(plugin.kernels[i].name, Kernel{&plugin.kernels[i], entries_.size()});
  }
  entries_.push_back(std::move(entry));
  return {};
}

Status PluginTable::load(const std::string& path) {
  TW_ASSIGN(const std::uint64_t hash, hash_of(path));
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return error(Errc::kUnsupported, "plug-in " + path + ": " + dlerror());
  auto library = std::make_unique<Library>(handle);
  const auto entry = reinterpret_cast<tilewise_plugin_fn>(dlsym(handle, "tilewise_plugin"));
  if (entry == nullptr) return error(Errc::kUnsupported, path + " exports no tilewise_plugin");
  const tilewise_plugin_v1* plugin = entry();
  if (plugin == nullptr) return error(Errc::kInvalidArgument, path + " describes no plug-in");
  TW_TRY(register_plugin(*plugin, hash));
  libraries_.push_back(std::move(library));
  return {};
}

Status PluginTable::add(const tilewise_plugin_v1& plugin) {
  TW_TRY(well_formed(plugin));
  Digest digest;
  digest.mix(std::string_view(plugin.name));
  digest.mix(std::string_view(plugin.version));
  for (int i = 0; i < plugin.kernel_count; ++i) digest.mix(std::string_view(plugin.kernels[i].name));
  return register_plugin(plugin, digest.value());
}

const tilewise_kernel_v1* PluginTable::find(const std::string& kernel) const {
  const auto at = kernels_.find(kernel);
  return at == kernels_.end() ? nullptr : at->second.kernel;
}

std::string PluginTable::version_of(const std::string& kernel) const {
  const auto at = kernels_.find(kernel);
  return at == kernels_.end() ? std::string() : entries_[at->second.entry].version;
}

}  // namespace tilewise::kernels
