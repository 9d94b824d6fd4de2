// tilewise::connect(): a session with the cluster that the environment names, or with one inside this process.
#include <tilewise/client/endpoint_decorator.h>
#include <tilewise/embedded/cluster.h>
#include <tilewise/io/stored.h>
#include <tilewise/remote/connect.h>
#include <tilewise/tilewise.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>

namespace tilewise {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// Nothing set: 0. What is no number from 0 to 1024 is a user's mistake.
int number(const char* name) {
  const std::string text = variable(name);
  int value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (!text.empty() &&
      (failed != std::errc() || end != text.data() + text.size() || value < 0 || value > 1024)) {
    throw ArrayError(Errc::kInvalidArgument,
                     std::string(name) + "='" + text + "' is no number from 0 to 1024");
  }
  return value;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> items;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) items.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return items;
}

// A client with a cluster to itself: both end with the session.
class OwnCluster final : public client::EndpointDecorator {
 public:
  OwnCluster(std::unique_ptr<embedded::Cluster> cluster, std::unique_ptr<client::Endpoint> endpoint)
      : EndpointDecorator(std::move(endpoint)), cluster_(std::move(cluster)) {}
  ~OwnCluster() override { real_.reset(); }  // ends first

 private:
  std::unique_ptr<embedded::Cluster> cluster_;
};

Result<std::unique_ptr<client::Endpoint>> embedded_endpoint(const std::string& name) {
  embedded::ClusterOptions options;
  options.host_devices = number("TILEWISE_HOST_DEVICES");
  options.cores = number("TILEWISE_CORES");
  options.plugins = split(variable("TILEWISE_PLUGIN"));
  TW_ASSIGN(auto cluster, embedded::Cluster::start(options));
  auto endpoint = cluster->connect(name);
  return std::unique_ptr<client::Endpoint>(
      std::make_unique<OwnCluster>(std::move(cluster), std::move(endpoint)));
}

}  // namespace

Session connect(SessionOptions options) {
  const std::string scheduler = variable("TILEWISE_SCHEDULER");
  auto endpoint = scheduler.empty() ? embedded_endpoint(options.name)
                                    : remote::connect_from_environment(scheduler, options.name);
  if (!endpoint) throw ArrayError(endpoint.error());
  if (!options.inspect) options.inspect = io::inspect;
  Session session = make_session(std::move(*endpoint), std::move(options));
  // The list of workers follows the welcome; a cluster without any is the user's to find out at the first compute.
  session.wait_for_devices(1, std::chrono::seconds(scheduler.empty() ? 0 : 2));
  return session;
}

}  // namespace tilewise
