#include <tilewise/config/version.h>

#include <unistd.h>
#include <climits>
#include <fstream>

namespace tilewise::config {

const std::string& software_version() {
  static const std::string version = TILEWISE_VERSION;
  return version;
}

std::string host_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char network[128] = {};
  if (readlink("/proc/self/ns/net", network, sizeof network - 1) < 0) network[0] = 0;
  // Without either, nobody is believed to share our memory.
  if (boot.empty() || network[0] == 0) return "process-" + std::to_string(getpid());
  return boot + "/" + network;
}

std::string process_name() {
  char host[HOST_NAME_MAX + 1] = {};
  if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
  return std::string(host[0] ? host : "localhost") + "/" + std::to_string(getpid());
}

}  // namespace tilewise::config
