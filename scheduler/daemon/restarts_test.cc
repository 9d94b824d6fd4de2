// A server that is destroyed and opened again at any point of what it does, as by kill -9: what it has not yet written of its journal is
// lost. Clients, by the couriers that real ones use, notice nothing: each request is answered, and once.
#include <tilewise/base/prng.h>
#include <tilewise/courier/courier.h>

#include <doctest/doctest.h>

#include <map>

#include "temp_folder.h"
#include "test_site.h"

namespace tilewise::scheduler {
namespace {

using testing::join_as;
using testing::kPatience;

class Client {
 public:
  Client(net::EventLoop& loop, const net::Address& scheduler, const net::Token& token) {
    std::unique_ptr<net::Link> link;
    const auto attempt =
        net::connect(loop, scheduler, {.token = token},
                     [&](Result<std::unique_ptr<net::Link>> made) { link = std::move(*made); });
    REQUIRE(loop.run_until([&] { return link != nullptr; }, kPatience));
    courier::Handlers handlers;
    handlers.on_message = [this](const msg::Message& message) { on_message(message); };
    handlers.on_lost = [this](const Error& why) { lost = why.message; };
    courier_ = std::make_unique<courier::Courier>(
        loop, courier::Options{.scheduler = scheduler, .token = token, .lease_ns = 60 * kSecond},
        std::move(handlers), std::move(link));
    msg::Join join = join_as(msg::Role::kClient);
    join.lease_ns = 60 * kSecond;
    join.addresses.clear();
    say(join);
    REQUIRE(loop.run_until([&] { return device.has_value(); }, kPatience));
  }

  // Asks for what is answered at once: without a worker, by a refusal.
  void ask() {
    msg::Announce announce;
    announce.request = announce.array = ++asked;
    announce.name = "array " + std::to_string(device->value) + "/" + std::to_string(asked);
    announce.shape = {4};
    announce.pieces = {{{0}, {4}}};
    say(announce);
  }
  bool answered() const { return answers.size() >= asked; }

  std::uint64_t asked = 0;
  std::map<std::uint64_t, int> answers;  // to each request
  std::string lost;
  std::optional<DeviceId> device;

 private:
  void say(const msg::Message& message) {
    codec::Buffer buffer;
    REQUIRE(codec::encode(message, buffer).has_value());
    if (lost.empty()) REQUIRE(courier_->send(codec::frame_type(message), buffer.bytes()).has_value());
  }
  void on_message(const msg::Message& message) {
    if (const auto* welcome = std::get_if<msg::Welcome>(&message)) device = welcome->devices.at(0);
    if (const auto* ping = std::get_if<msg::Ping>(&message)) say(msg::Pong{ping->nonce});
    if (const auto* reply = std::get_if<msg::SubmitReply>(&message)) ++answers[reply->request];
  }

  std::unique_ptr<courier::Courier> courier_;
};

TEST_CASE(
    "a scheduler that dies at any point, and forgets what it has not written: everybody is answered once") {
  for (const std::uint64_t seed : {1, 2}) {
    CAPTURE(seed);
    Prng prng(seed);
    const tilewise::testing::TempFolder folder;
    const net::Token token = *net::Token::generate();
    const std::unique_ptr<net::EventLoop> loop = *net::EventLoop::create();
    std::unique_ptr<Server> server;
    net::Address address = *net::Address::parse("tcp://127.0.0.1:0");
    const auto open = [&] {
      ServerOptions options{.listen = address, .token = token, .core = {}, .state_dir = folder / "state"};
      auto opened = Server::open(*loop, std::move(options), [] {});
      REQUIRE_MESSAGE(opened.has_value(), opened.error().message);
      server = std::move(*opened);
      address = server->address();
    };
    open();
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 3; ++i) clients.push_back(std::make_unique<Client>(*loop, address, token));
    std::uint64_t answered_at_once = 0;
    for (int kills = 0; kills < 60; ++kills) {
      // From none to some turns of the loop between what they ask; every now and then all are answered.
      for (std::int64_t asks = prng.between(0, 12); asks > 0; --asks) {
        clients[static_cast<std::size_t>(prng.below(clients.size()))]->ask();
        std::int64_t turns = prng.between(0, 3);
        (void)loop->run_until([&] { return turns-- <= 0; }, kSecond);
      }
      if (prng.chance(0.3)) {
        const auto all_answered = [&] {
          return std::all_of(clients.begin(), clients.end(), [](const auto& c) { return c->answered(); });
        };
        REQUIRE(loop->run_until(all_answered, kPatience));
        ++answered_at_once;
      }
      server.reset();
      open();
    }
    CHECK(answered_at_once > 5);
    for (const auto& client : clients) {
      REQUIRE(loop->run_until([&] { return client->answered() || !client->lost.empty(); }, kPatience));
      CHECK_MESSAGE(client->lost.empty(), client->lost);
      CHECK(client->asked > 30);
      CHECK(std::all_of(client->answers.begin(), client->answers.end(),
                        [](const auto& answer) { return answer.second == 1; }));
    }
  }
}

}  // namespace
}  // namespace tilewise::scheduler
