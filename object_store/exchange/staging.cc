#include <tilewise/exchange/staging.h>

namespace tilewise::exchange {

using device::Kind;
using device::Place;

void Staging::enter(Queue& queue, std::int64_t bytes, std::function<void()> begin) {
  // One that is larger than the limit goes alone.
  if (queue.bytes > 0 && queue.bytes + bytes > limit_) {
    queue.waiting.push_back(
        [this, &queue, bytes, begin = std::move(begin)]() mutable { enter(queue, bytes, std::move(begin)); });
    return;
  }
  queue.bytes += bytes;
  begin();
}

void Staging::leave(Queue& queue, std::int64_t bytes) {
  queue.bytes -= bytes;
  for (std::size_t left = queue.waiting.size(); left > 0; --left) {
    auto next = std::move(queue.waiting.front());
    queue.waiting.pop_front();
    next();
  }
}

void Staging::transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                       Exchange::Done done) {
  enter(out_, bytes, [=, this, done = std::move(done)] {
    auto buffer = std::make_shared_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
    const auto copied = [=, this](const Status& ok) {
      if (!ok) {
        leave(out_, bytes);
        return done(ok, msg::Lane::kStaged);
      }
      exchange_.transmit(to, transfer, buffer.get(), bytes, Kind::kHost,
                         [=, this](const Status& sent, msg::Lane) {
                           leave(out_, bytes);
                           done(sent, msg::Lane::kStaged);
                           (void)buffer;
                         });
    };
    copier_.copy({buffer.get(), Kind::kHost}, {const_cast<std::byte*>(from), Kind::kCuda}, bytes, copied);
  });
}

void Staging::receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                      Exchange::Done done) {
  enter(in_, bytes, [=, this, done = std::move(done)] {
    auto buffer = std::make_shared_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
    const auto arrived = [=, this](const Status& ok, msg::Lane) {
      const auto copied = [=, this](const Status& there) {
        leave(in_, bytes);
        done(there, msg::Lane::kStaged);
        (void)buffer;
      };
      if (!ok) return copied(ok);
      copier_.copy({to, Kind::kCuda}, {buffer.get(), Kind::kHost}, bytes, copied);
    };
    exchange_.receive(from, transfer, buffer.get(), bytes, Kind::kHost, arrived);
  });
}

}  // namespace tilewise::exchange
