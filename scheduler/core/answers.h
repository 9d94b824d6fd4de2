// What workers answered when they were asked what they have, by what is looked for. Valid while the answers are.
#pragma once
#include <tilewise/msg/msg.h>

#include <map>
#include <utility>
#include <vector>

namespace tilewise::scheduler {

// Rising, and apart from each other.
bool contains(const std::vector<msg::Range>& ranges, std::int64_t block);

class Answers {
 public:
  explicit Answers(const std::vector<msg::Held>& all);

  bool cut() const { return cut_; }  // too much to tell: nothing can be concluded
  // Null: it said nothing of it.
  const msg::Held::Share* share(OpId op, DeviceId device) const;
  const std::vector<const msg::Held::Blocks*>& blocks(ArrayId array) const;  // by device, rising
  bool has(ArrayId array, std::int64_t block, DeviceId device) const;

 private:
  std::map<std::pair<OpId, DeviceId>, const msg::Held::Share*> shares_;
  std::map<ArrayId, std::vector<const msg::Held::Blocks*>> blocks_;
  bool cut_ = false;
};

}  // namespace tilewise::scheduler
