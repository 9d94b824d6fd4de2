#include "checkpoints.h"

#include <tilewise/ir/checkpoint.h>

#include "draft.h"
#include "graphs.h"
#include "handlers.h"
#include "layers.h"
#include "outbox.h"
#include "own.h"
#include "removals.h"

#include <algorithm>
#include <utility>

namespace tilewise::scheduler {
namespace {

namespace names = ir::checkpoint;

constexpr std::string_view kLabel = "checkpoint";
constexpr std::size_t kFileNoteBytes =
    32;  // at most, beside the text of a file, where all of an op's are named together

// The devices that have or had the blocks: nothing moves where they still do.
std::optional<ir::Placement> where_blocks_are(const State& s, const OpRecord& head) {
  const ir::Placement now = without_lost(s, layered_placement(s, head));
  std::vector<ir::Piece> pieces = now.pieces();
  if (pieces.empty()) return {};
  for (ir::Piece& piece : pieces) {
    std::vector<DeviceId> owners;
    for (std::size_t i = 0; i < piece.rule.devices.size(); i += static_cast<std::size_t>(piece.rule.copies))
      owners.push_back(piece.rule.devices[i]);
    piece.rule.devices = std::move(owners);
    piece.rule.copies = 1;
  }
  ir::Placement out(std::move(pieces));
  const std::vector<DeviceId> on = out.devices();
  if (!std::all_of(on.begin(), on.end(), [&](DeviceId id) { return s.device(id)->alive; })) return {};
  return out;
}

std::size_t folder_users(const State& s) {
  return static_cast<std::size_t>(std::count_if(s.live.begin(), s.live.end(), [&](WorkerId id) {
    return s.is_worker(id) && !s.peer(id).info.devices.empty();
  }));
}

names::File file_of(std::uint64_t id, const Checkpoints::File& file, const ArrayRecord& array) {
  return {id, static_cast<std::int64_t>(place::bytes_of(array.source)), array.source.grid,
          describe(array).substr(0, limits::kMaxNameBytes), file.folder};
}

std::size_t under_way(const Checkpoints& c) {
  return static_cast<std::size_t>(
      std::count_if(c.files.begin(), c.files.end(), [](const auto& file) { return bool(file.second.op); }));
}

// What of the op's results is to be in files: all that are held. None: one of them is too large.
std::vector<ArrayRecord*> to_write(State& s, const OpRecord& head) {
  std::vector<ArrayRecord*> out;
  for (const ir::OutputSpec& output : head.op.outputs) {
    ArrayRecord& array = s.arrays.at(ArrayId{output.array});
    if (!array.held) continue;
    if (place::bytes_of(array.source) > 1e18) return {};
    out.push_back(&array);
  }
  return out;
}

// A graph that makes the file and puts the array's blocks into it. The op that does the latter.
OpId write_file(State& s, const GraphRecord& like, const std::string& params, const ArrayRecord& array,
                const ir::Placement& placement, std::vector<msg::Plan>& plans) {
  const ir::Grid& grid = array.source.grid;
  GraphRecord& graph = own_graph(s, &like);
  msg::Plan& plan = plans.emplace_back(own_plan(graph));
  const ir::Op create = own_call(s, kLabel, names::kCreate, params, one_point());
  add_own(s, graph, plan, create,
          ir::Placement::whole({1}, ir::Rule::constant(1, placement.devices().front())));
  ir::Op write = own_call(s, kLabel, names::kWrite, params, grid);
  write.operands = {{array.id.value, ir::View::identity(grid.shape())},
                    {create.outputs[0].array, ir::View::identity({1})}};
  ir::OperandMap own_block;
  for (int d = 0; d < grid.rank(); ++d)
    own_block.push_back({ir::DimMap::Kind::kSpan, static_cast<std::int8_t>(d)});
  auto attrs = write.get<ir::CallAttrs>();
  attrs.maps = {own_block, {{.kind = ir::DimMap::Kind::kWhole}}};
  write.attrs = std::move(attrs);
  return add_own(s, graph, plan, std::move(write), placement);
}

void commit(State& s, std::uint64_t id, Checkpoints::File& file, DeviceId on) {
  const ArrayRecord& array = s.arrays.at(file.array);
  GraphRecord& graph = own_graph(s, s.graphs.find(s.ops.at(array.producer).graph));
  msg::Plan plan = own_plan(graph);
  file.step = Checkpoints::Step::kCommitting;
  file.op = add_own(s, graph, plan,
                    own_call(s, kLabel, names::kCommit, names::text(file_of(id, file, array)), one_point()),
                    ir::Placement::whole({1}, ir::Rule::constant(1, on)));
  log_to_workers(s, std::move(plan));
}

// All results of the op: the files of some do for nothing.
void give_up(State& s, OpRecord& op, const msg::Outcome& why) {
  Checkpoints& c = s.checkpoints;
  c.trouble = why.message;
  c.due = true;
  for (const ir::OutputSpec& output : op.op.outputs) {
    ArrayRecord& array = s.arrays.at(ArrayId{output.array});
    if (array.file == 0) continue;
    ++c.failed;
    c.files.erase(std::exchange(array.file, 0));
    array.anchor = false;
  }
  forget_past(op);
}

void file_op_ended(State& s, const Checkpoints::Ended& ended) {
  Checkpoints& c = s.checkpoints;
  const auto at = std::find_if(c.files.begin(), c.files.end(),
                               [&](const auto& file) { return file.second.op == ended.op; });
  if (at == c.files.end()) return;  // the array has gone meanwhile
  auto& [id, file] = *at;
  OpRecord& head = s.ops.at(s.arrays.at(file.array).producer);
  if (!ended.ok) return give_up(s, head, ended.why);
  if (file.step == Checkpoints::Step::kWriting) {
    const OpRecord* writer = s.ops.find(ended.op);
    const DeviceId on = writer == nullptr || writer->shares.empty() ? DeviceId{} : writer->shares[0].device;
    if (!on || !s.device(on)->alive)
      return give_up(s, head, {Errc::kWorkerLost, "who wrote it was lost before it was durable"});
    return commit(s, id, file, on);
  }
  file.step = Checkpoints::Step::kThere;
  file.op = {};
  ++c.written;
  c.trouble.clear();
  cut_past(s, head);
}

void tending_ended(State& s, const Checkpoints::Ended& ended) {
  Checkpoints& c = s.checkpoints;
  c.tending = {};
  const WorkerId tender = std::exchange(c.tender, {});
  if (std::exchange(c.tends_before, false) || !s.peer(tender).alive) {
    c.due = true;
    return;
  }
  c.unseen.erase(tender);
  if (ended.ok) {
    c.made = true;
    c.without.erase(tender);
    return;
  }
  c.without[tender] = ended.why.message;
  c.due = true;  // somebody else may
}

}  // namespace

bool write_unasked(State& s, const OpRecord& head, std::vector<msg::Plan>& plans) {
  Checkpoints& c = s.checkpoints;
  if (s.options.checkpoint_dir.empty()) return false;
  for (const auto& [worker, why] : c.without) c.unseen.insert(worker);  // it may be better by now
  if (!c.without.empty() && c.without.size() == folder_users(s))
    c.made = false;  // nobody sees it: it is gone
  const std::vector<ArrayRecord*> arrays = to_write(s, head);
  if (arrays.empty() || !c.made || !c.unseen.empty() ||
      c.files.size() + arrays.size() > Checkpoints::kMaxFiles ||
      under_way(c) + arrays.size() > Checkpoints::kMaxUnderWay)
    return false;
  const std::optional<ir::Placement> placement = where_blocks_are(s, head);
  if (!placement) return false;
  std::map<std::uint64_t, Checkpoints::File> files;
  std::size_t param_bytes = 0;
  for (const ArrayRecord* array : arrays) {
    const std::uint64_t id = make_id(s.options.term, c.next++);
    const Checkpoints::File& file =
        files[id] = {array->id, Checkpoints::Step::kWriting, {}, s.options.checkpoint_dir};
    param_bytes += kFileNoteBytes + names::text(file_of(id, file, *array)).size();
  }
  if (param_bytes > limits::kMaxParamBytes) return false;  // cut into very many uneven blocks
  for (auto& [id, file] : files) {
    ArrayRecord& array = s.arrays.at(file.array);
    file.op = write_file(s, s.graphs.at(head.graph), names::text(file_of(id, file, array)), array, *placement,
                         plans);
    array.file = id;
  }
  c.files.merge(files);
  return true;
}

bool writes_later(const State& s) {
  const Checkpoints& c = s.checkpoints;
  if (s.options.checkpoint_dir.empty()) return false;
  return under_way(c) > 0 || (c.without.empty() && (!c.made || !c.unseen.empty()));
}

bool on_disk(const State& s, const ArrayRecord& array) {
  return array.file != 0 && s.checkpoints.files.at(array.file).step == Checkpoints::Step::kThere;
}

void turn_to_file(State& s, OpRecord& op) {
  names::Files files;
  const ir::Grid* space = nullptr;
  for (const ir::OutputSpec& output : op.op.outputs) {
    const ArrayRecord& array = s.arrays.at(ArrayId{output.array});
    auto& file = files.emplace_back();
    if (array.file == 0) continue;
    file = file_of(array.file, s.checkpoints.files.at(array.file), array);
    if (space == nullptr) space = &array.source.grid;
  }
  TW_CHECK(space != nullptr, "an op reads files that are there");
  op.op.kind = ir::OpKind::kCall;
  op.op.operands.clear();
  op.op.space = *space;
  op.op.attrs =
      ir::CallAttrs{.kernel = std::string(names::kRestore), .version = "1", .params = names::text(files)};
}

bool is_from_file(const OpRecord& op) {
  return op.op.kind == ir::OpKind::kCall && op.op.get<ir::CallAttrs>().kernel == names::kRestore;
}

void own_op_failed(State& s, const OpRecord& op, const std::string& why) {
  s.checkpoints.failing.emplace(op.id, why);
}

void own_op_ended(State& s, const OpRecord& op) {
  Checkpoints& c = s.checkpoints;
  Checkpoints::Ended ended{op.id, op.failed == 0 && op.completed == op.op.space.block_count(), {}};
  const GraphRecord& graph = s.graphs.at(op.graph);
  if (!ended.ok) {
    ended.why = {Errc::kWorkerLost, "a worker was lost while it was written"};
    if (graph.cancelled) ended.why = graph.root_cause;
    for (const OpId id : graph.ops) {  // the first to fail knows why
      const auto known = c.failing.find(id);
      if (known == c.failing.end()) continue;
      ended.why = {Errc::kTaskFailed, known->second};
      break;
    }
  }
  if (graph.ops_open == 1) {
    for (const OpId id : graph.ops) c.failing.erase(id);
  }
  c.ended.push_back(std::move(ended));
}

void check_checkpoints(State& s) {
  for (const Checkpoints::Ended& ended : std::exchange(s.checkpoints.ended, {})) {
    if (ended.op == s.checkpoints.tending)
      tending_ended(s, ended);
    else if (!removal_ended(s, ended))
      file_op_ended(s, ended);
  }
}

void tend_checkpoints(State& s) {
  Checkpoints& c = s.checkpoints;
  if (s.options.checkpoint_dir.empty() || c.tending || (c.unseen.empty() && !c.due)) return;
  WorkerId by;
  if (!c.unseen.empty()) by = *c.unseen.begin();
  for (const WorkerId id : s.live) {
    if (by) break;
    if (s.is_worker(id) && !s.peer(id).info.devices.empty() && !c.without.contains(id)) by = id;
  }
  if (!by) return;
  if (!c.made) c.marker = make_id(s.options.term, c.next++);
  names::Folder folder{s.options.state,         c.marker, !c.made, make_id(s.options.term, c.next), {},
                       s.options.checkpoint_dir};
  for (const auto& [id, file] : c.files) folder.keep.push_back(id);
  GraphRecord& graph = own_graph(s, nullptr);
  msg::Plan plan = own_plan(graph);
  const DeviceId device = s.peer(by).info.devices.front();
  c.tending = add_own(s, graph, plan, own_call(s, kLabel, names::kTend, names::text(folder), one_point()),
                      ir::Placement::whole({1}, ir::Rule::constant(1, device)));
  c.tender = by;
  c.due = false;
  log_to_workers(s, std::move(plan));
}

void forget_checkpoint(State& s, const ArrayRecord& array) {
  if (array.file == 0) return;
  s.checkpoints.files.erase(array.file);
  s.checkpoints.due = true;
}

void show_folder(State& s, const Peer& newcomer) {
  if (!s.options.checkpoint_dir.empty() && !newcomer.info.devices.empty())
    s.checkpoints.unseen.insert(newcomer.info.id);
}

void hide_folder(State& s, WorkerId gone) {
  s.checkpoints.unseen.erase(gone);
  s.checkpoints.without.erase(gone);
}

void reopen_folder(State& s) {
  Checkpoints& c = s.checkpoints;
  c.unseen.clear();
  c.without.clear();
  c.next = 1;      // of a new term
  c.made = false;  // the folder may have gone meanwhile, or be another one
  c.due = true;
  c.tends_before = static_cast<bool>(c.tending);
  for (const WorkerId id : s.live) {
    if (s.is_worker(id)) show_folder(s, s.peer(id));
  }
}

}  // namespace tilewise::scheduler
