// After a loss: who is still to read what. From the answers of the living and the plan; valid while these are.
#pragma once
#include "answers.h"
#include "state.h"

#include <tilewise/ir/geometry.h>

#include <map>
#include <utility>
#include <vector>

namespace tilewise::scheduler {

class Readers {
 public:
  // `leaver`: a worker that is looked at as if it had died, or none.
  Readers(State& s, const Answers& answers, WorkerId leaver);

  // Some client has not got the block yet, or has not said so.
  bool await(const ArrayRecord& array, std::int64_t block);
  // Some point that has not been begun on a living device reads the block. Where there are very many: true.
  bool will_read(ArrayId array, std::int64_t block);
  // Unfinished ops, and as which operand they read it.
  const std::vector<std::pair<OpId, int>>& of(ArrayId array) const;

  bool alive(DeviceId id) const;
  const ir::Geometry& geometry_of(const OpRecord& head);

 private:
  using Marks = std::vector<std::vector<bool>>;  // blocks, by operand

  bool will_read(OpRecord& user, int operand, std::int64_t block);
  bool is_open(const OpRecord& user, const OpRecord& head, const ir::Index& point) const;
  bool is_marked(const OpRecord& user, const OpRecord& head, int operand, std::int64_t block);
  bool mark(const OpRecord& user, const OpRecord& head, Marks& marks);

  State& s_;
  const Answers& answers_;
  const WorkerId leaver_;
  std::map<ArrayId, std::vector<std::pair<OpId, int>>> users_;
  std::map<ArrayId, std::vector<const msg::Held::Share*>>
      fetches_;  // of each that is open, what its client has said, or null
  std::map<OpId, ir::Geometry> geometries_;
  std::map<OpId, Marks>
      marked_;  // what is still to be read by ops with many readers of a block; empty: too much to list
  std::int64_t marks_left_;
};

}  // namespace tilewise::scheduler
