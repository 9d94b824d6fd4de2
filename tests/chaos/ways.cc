#include "ways.h"

#include <tilewise/net/address.h>

#include <map>
#include <utility>

#include "../integration/proxy.h"

namespace tilewise::testing {
namespace {

class Hosts final : public Ways {
 public:
  explicit Hosts(std::unique_ptr<Network> network) : network_(std::move(network)) {}

  const Network* network() const override { return network_.get(); }
  std::string to_scheduler(const std::string& address, int worker) override {
    if (worker < 0) scheduler_ = address;
    return {};
  }
  bool cut(int one, int two, bool both) override {
    if (together(one, two)) return false;
    const auto lose = [&](int from, int to) {
      network_->cut(from, to);
      cut_.emplace_back(from, to);
    };
    lose(host(one), host(two));
    if (both) lose(host(two), host(one));
    return true;
  }
  void isolate(int worker) override {
    isolated_ = host(worker);
    network_->isolate(isolated_);
  }
  // Links between two workers, or between one and the clients.
  bool reset(int worker, int other) override {
    if (together(worker, other))
      return network_->reset_with_here(host(worker), net::Address::parse(scheduler_)->port);
    return network_->reset(host(worker), host(other));
  }
  bool slow_down(int worker, std::int64_t bits_per_s) override {
    slow_ = host(worker);
    return network_->slow_down(slow_, bits_per_s);
  }
  bool lose_some(int worker, double share) override {
    lossy_ = host(worker);
    return network_->lose_some(lossy_, share);
  }
  void mend() override {
    for (const auto& [from, to] : cut_) network_->mend(from, to);
    cut_.clear();
    if (isolated_ >= 0) network_->rejoin(isolated_);
    if (slow_ >= 0) (void)network_->slow_down(slow_, 0);
    if (lossy_ >= 0) (void)network_->lose_some(lossy_, 0);
    isolated_ = slow_ = lossy_ = -1;
  }
  bool together(int one, int two) const override { return host(one) == host(two); }

 private:
  int host(int worker) const { return worker % network_->hosts(); }

  std::unique_ptr<Network> network_;
  std::string scheduler_;
  std::vector<std::pair<int, int>> cut_;
  int isolated_ = -1, slow_ = -1, lossy_ = -1;
};

// A proxy for each worker, one for the clients. What is between workers stays whole.
class Proxies final : public Ways {
 public:
  std::string to_scheduler(const std::string& address, int worker) override {
    return (proxies_[worker] = std::make_unique<Proxy>(address))->address();
  }
  bool cut(int one, int two, bool both) override {
    // From the first to the scheduler, or from there to the second.
    of(one).hold(true, both);
    if (two != one && !both) of(two).hold(false, true);
    return true;
  }
  void isolate(int worker) override { of(worker).hold(true, true); }
  bool reset(int worker, int other) override {
    of(worker == other ? -1 : worker).reset();
    return true;
  }
  bool slow_down(int worker, std::int64_t bits_per_s) override {
    of(worker).slow_down(bits_per_s / 8);
    return true;
  }
  bool lose_some(int, double) override { return false; }  // there are no packets here
  void mend() override {
    for (auto& [worker, proxy] : proxies_) {
      proxy->hold(false, false);
      proxy->slow_down(0);
    }
  }
  bool together(int one, int two) const override { return one == two; }

 private:
  Proxy& of(int worker) { return *proxies_.at(worker); }

  std::map<int, std::unique_ptr<Proxy>> proxies_;
};

}  // namespace

std::unique_ptr<Ways> make_ways(const std::string& ways, int workers, std::string& why) {
  if (ways != "proxies") {
    if (auto network = Network::make(workers, why)) return std::make_unique<Hosts>(std::move(network));
    if (ways == "hosts") return nullptr;
  }
  return std::make_unique<Proxies>();
}

}  // namespace tilewise::testing
