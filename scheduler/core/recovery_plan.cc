// What must be made again after a loss, and where: from the answers of the living and the plan.
//
// Words: a *head* is a planned op, its *points* number the blocks of its results. A point is *wanted* if a result is held, a
// client's fetch waits for it, a task that has been begun waits for it, a task not begun will read it, or a point that is
// made again reads it; or if it is run for its effect alone (a file is put in place) and is not known to be over. A wanted point is *there* if its owner lives and has the block or will make it; else it is *kept*
// where another device has a copy, else it is *made again*. The same says what must be *moved* before a worker may leave: it is
// looked at as if it had died, but what it has is not made again. Heads are visited from the last to the first, so every reader
// comes before what it reads, and each is visited once.
#include "answers.h"
#include "dealing.h"
#include "draft.h"
#include "effects.h"
#include "graphs.h"
#include "handlers.h"
#include "layers.h"
#include "readers.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

class Planner {
 public:
  // `leaver`: given, a worker that might leave; then nothing is changed, only asked.
  explicit Planner(State& s, WorkerId leaver = {})
      : s_(s), leaver_(leaver), answers_(s.recovery.answers), readers_(s, answers_, leaver) {}

  // False: something cannot be recovered. Then what wanted it has been ended, and all is to be computed again.
  bool compute() {
    std::set<OpId> left = s_.recovery.asked;
    while (!left.empty()) {
      const OpId id = *left.rbegin();
      left.erase(id);
      OpRecord* head = s_.ops.find(id);
      if (head == nullptr) continue;
      Group& group = groups_[id];
      group.head = head;
      if (!visit(group, left)) return false;
    }
    return true;
  }

  Departure departure() {
    Departure out;
    const bool possible = compute();
    out.why = blocked_;
    if (possible) out.blocks = std::move(moved_);
    return out;
  }

  // Layers in the order of the plan: producers first.
  std::vector<msg::Plan> commit() {
    std::vector<msg::Plan> plans;
    sum_up();
    raise_priorities();
    for (auto& [id, group] : groups_) {
      if (group.provided) add_layer(plans, group, {}, Form::kProvided);
      if (!group.kept.empty()) add_layer(plans, group, std::move(group.kept), Form::kKept);
      if (!group.apart.empty() && group.head->retired) add_layer(plans, group, {}, Form::kKept);
      for (auto& [result, runs] : group.apart)
        add_layer(plans, group, std::move(runs), Form::kKept, Results().set(result));
      for (const Point& point : group.doomed) {
        std::vector<ir::Run> run;
        const DeviceId device =
            makes_itself(*group.head, point) ? point.before : alike(*group.head, point.like).open.front();
        ir::append(run, point.number, device);
        add_layer(plans, group, std::move(run), Form::kDoomed, point.results);
      }
      if (group.again.empty()) continue;
      introduce_operands(plans, *group.head);
      for (auto& [kind, runs] : place(group))
        add_layer(plans, group, std::move(runs), kind.first, Results(kind.second));
    }
    return plans;
  }

 private:
  struct Point {
    std::int64_t number = 0;
    DeviceId before;  // who had it
    DeviceId like;    // it is to make the same bits as this one
    Results results;  // that are to be made; the others are not taken from who has them
  };
  struct Group {
    OpRecord* head = nullptr;
    std::vector<std::int64_t> demand;  // by points that are made again
    std::vector<OpId> demanded_by;     // whose they are
    std::vector<Point> again;          // rising
    std::vector<Point> doomed;         // they have taken down too many workers
    std::vector<ir::Run> kept;         // rising
    std::map<std::size_t, std::vector<ir::Run>>
        apart;                          // the same, where others of the task's results are not there
    bool provided = false;              // workers are to know a client's array again
    std::int32_t priority = INT32_MIN;  // of who waits for what is made again
  };

  // ---- what is there ----

  bool alive(DeviceId id) const { return readers_.alive(id); }

  // The owner had let it go, and has it again.
  bool has_as_copy(ArrayId result, std::int64_t point, DeviceId owner) const {
    const auto& found = answers_.blocks(result);
    return std::any_of(found.begin(), found.end(), [&](const auto* blocks) {
      return blocks->device == owner && contains(blocks->sealed, point) && contains(blocks->wanted, point);
    });
  }

  static Results all_results(const OpRecord& head) { return (1UL << head.op.outputs.size()) - 1; }

  // Those of its head's results that the op, or layer, has or makes.
  Results results_of(OpRecord& op) const {
    const std::vector<ir::OutputSpec>& all = head_of(s_, op).op.outputs;
    Results out;
    for (std::size_t i = 0; i < all.size(); ++i)
      out[i] = std::any_of(op.op.outputs.begin(), op.op.outputs.end(),
                           [&](const ir::OutputSpec& output) { return output.array == all[i].array; });
    return out;
  }

  // Of a task's results those that anybody wants. A task of one result is looked at because that one is, or because it is to be run.
  Results wanted_results(const OpRecord& head, std::int64_t point) {
    const std::vector<ir::OutputSpec>& outputs = head.op.outputs;
    if (outputs.size() == 1) return 1;
    Results out;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      out[i] = demanded_.contains({outputs[i].array, point}) ||
               wanted(ArrayId{outputs[i].array}, point, spent(head, outputs[i], point));
    return out;
  }

  // All of these; if there are none, some: then the task is over.
  bool has(const OpRecord& head, const Results& results, std::int64_t point, DeviceId device) const {
    const std::vector<ir::OutputSpec>& outputs = head.op.outputs;
    bool all = true, any = false;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const bool here = answers_.has(ArrayId{outputs[i].array}, point, device);
      any |= here, all &= here || !results[i];
    }
    return results.none() ? any : all;
  }

  // Who has them: of living devices, or of the leaver's.
  DeviceId somewhere(const OpRecord& head, const Results& results, std::int64_t point,
                     bool living = true) const {
    for (const ir::OutputSpec& output : head.op.outputs) {
      for (const auto* blocks : answers_.blocks(ArrayId{output.array})) {
        if (alive(blocks->device) == living && s_.device(blocks->device)->alive &&
            has(head, results, point, blocks->device))
          return blocks->device;
      }
    }
    return {};
  }

  // Who is to have a task's result now, dead or alive, and the record that says so. None: nobody is known.
  struct Holder {
    const OpRecord* op = nullptr;
    DeviceId device;
  };
  Holder holder(const OpRecord& head, const ir::OutputSpec& output, const ir::Index& at) const {
    const OpRecord* op = holder_of(s_, head, ArrayId{output.array}, at);
    return op == nullptr ? Holder{} : Holder{op, op->placement.owner(at)};
  }

  // A layer says of those that are there that they are. Of no others: they would be waited for, or be taken from who serves them.
  void keep(Group& group, const Results& results, std::int64_t point, DeviceId device) const {
    const std::vector<ir::OutputSpec>& outputs = group.head->op.outputs;
    Results there;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      there[i] = results[i] && answers_.has(ArrayId{outputs[i].array}, point, device);
    if (there.count() == outputs.size()) return ir::append(group.kept, point, device);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (there[i]) ir::append(group.apart[i], point, device);
  }

  // Nobody wants its results: it was to be run for what it does, and has been, or will be.
  bool is_over(const OpRecord& head, const ir::Index& at, std::int64_t point) const {
    const OpRecord* op = maker_of(s_, head, at);
    const DeviceId owner = op == nullptr ? DeviceId{} : op->placement.owner(at);
    return owner && alive(owner) && (has(head, {}, point, owner) || to_come(*op, at, point, owner));
  }

  // Of these results those that nobody has where all look for them, nor will make; and others of which nobody lives who might be asked
  // for them. Of what had been let go there, and was taken again, the others are told.
  Results missing(Group& group, const Results& wanted, const ir::Index& at, std::int64_t point) const {
    const OpRecord& head = *group.head;
    const std::size_t count = head.op.outputs.size();
    Results out, unasked;
    for (std::size_t i = 0; i < count; ++i) {
      const ArrayId id{head.op.outputs[i].array};
      const auto [op, owner] = holder(head, head.op.outputs[i], at);
      const bool lives = owner && alive(owner);
      if (!wanted[i])
        unasked[i] = !lives;
      else if (!lives || !(answers_.has(id, point, owner) || to_come(*op, at, point, owner)))
        out.set(i);
      else if (has_as_copy(id, point, owner))
        ir::append(count == 1 ? group.kept : group.apart[i], point, owner);
    }
    return out.any() ? out | unasked : out;
  }

  // Its owner, who lives or has left as it was asked to, had finished the point and let go of the result. So whoever was to read it has
  // done so, or has it; only who says that it still waits is believed.
  bool spent(const OpRecord& op, DeviceId device, std::int64_t ordinal, const ir::OutputSpec& output,
             std::int64_t point) const {
    const Device& owner = *s_.device(device);
    if ((!owner.alive && owner.peer != s_.recovery.leaver) ||
        answers_.has(ArrayId{output.array}, point, device))
      return false;
    const msg::Held::Share* share = answers_.share(op.id, device);
    if (share == nullptr) return op.finished;
    return ordinal < share->next && !contains(share->begun, point);
  }

  bool spent(const OpRecord& head, const ir::OutputSpec& output, std::int64_t point) const {
    const ir::Index at = ir::unravel(point, head.op.space.counts());
    const auto [op, device] = holder(head, output, at);
    return device && spent(*op, device, op->placement.ordinal(device, at), output, point);
  }

  // The results on the leaver, to be copied to `to`, or anywhere.
  void move(const OpRecord& head, const Results& results, std::int64_t point, DeviceId from, DeviceId to) {
    for (std::size_t i = 0; i < head.op.outputs.size(); ++i) {
      const ArrayId id{head.op.outputs[i].array};
      if (results[i] && answers_.has(id, point, from)) moved_.push_back({id, point, from, to});
    }
  }

  // Takes these from where they are, all from one device if one has them. Returns what was found.
  Results find(Group& group, const Results& results, std::int64_t point) {
    const OpRecord& head = *group.head;
    const auto take = [&](const Results& some) {
      const DeviceId leaving = leaver_ ? somewhere(head, some, point, false) : DeviceId{};
      const DeviceId device = somewhere(head, some, point);
      const Results all = some.none() ? all_results(head) : some;
      if (leaving) move(head, all, point, leaving, device);
      if (device) keep(group, all, point, device);
      return leaving || device;
    };
    Results found;
    const bool apart = leaver_ && results.count() > 1 && !somewhere(head, results, point);
    if (!apart && take(results)) return results.none() ? all_results(head) : results;
    for (std::size_t i = 0; i < head.op.outputs.size() && results.count() > 1; ++i)
      found[i] = results[i] && take(Results().set(i));
    return found;
  }

  // The device lives, and will make the point or is making it. An op that nobody was asked about is newer than the loss.
  bool to_come(const OpRecord& op, const ir::Index& at, std::int64_t point, DeviceId device) const {
    const msg::Held::Share* share = answers_.share(op.id, device);
    if (share == nullptr) return !op.finished && !s_.recovery.asked.contains(op.of ? op.of : op.id);
    return op.placement.ordinal(device, at) >= share->next || contains(share->begun, point);
  }

  // ---- what is wanted ----

  bool wanted(ArrayId id, std::int64_t point, bool spent = false) {
    const ArrayRecord& array = s_.arrays.at(id);
    // Who waits for blocks of an array of which some have failed is owed the others.
    if (!spent && readers_.await(array, point)) return true;
    if (!array.failed.ok()) return false;
    if (array.held) return true;
    const auto& blocks = answers_.blocks(id);
    if (std::any_of(blocks.begin(), blocks.end(),
                    [&](const auto* on) { return alive(on->device) && contains(on->wanted, point); }))
      return true;
    return !spent && readers_.will_read(id, point);
  }

  // Points on lost devices that are wanted, besides those that readers made again have asked for.
  void add_lost(Group& group) {
    OpRecord& head = *group.head;
    if (head.retired) return;
    std::vector<OpId> records(head.layers);
    if (!head.forgotten) records.push_back(head.id);
    for (const OpId id : records) {
      const OpRecord& op = s_.ops.at(id);
      for (const DeviceId device : op.placement.devices()) {
        const WorkerId peer = s_.device(device)->peer;
        if (alive(device) || (s_.is_worker(peer) && !s_.recovery.concerns(peer))) continue;
        const std::int64_t owned = op.placement.owned_count(device);
        s_.counts.lost_points += owned;
        for (std::int64_t i = 0; i < owned; ++i) {
          const ir::Index at = op.placement.nth(device, i);
          const std::int64_t point = ir::ravel(at, head.op.space.counts());
          const bool is_wanted =
              std::any_of(op.op.outputs.begin(), op.op.outputs.end(), [&](const ir::OutputSpec& output) {
                const ArrayId result{output.array};
                return holder_of(s_, head, result, at) == &op &&
                       wanted(result, point, spent(op, device, i, output, point));
              });
          if (is_wanted ||
              (maker_of(s_, head, at) == &op && owes_effect(s_, answers_, head, op, device, i, point)))
            group.demand.push_back(point);
        }
      }
    }
  }

  // ---- one head ----

  bool visit(Group& group, std::set<OpId>& left) {
    OpRecord& head = *group.head;
    if (head.op.outputs.empty()) return true;
    add_lost(group);
    std::sort(group.demand.begin(), group.demand.end());
    group.demand.erase(std::unique(group.demand.begin(), group.demand.end()), group.demand.end());
    if (group.demand.empty()) return true;
    if (answers_.cut()) return broken(group, "too many pieces of blocks to tell what is left");
    const ir::Shape counts = head.op.space.counts();
    if (head.op.kind == ir::OpKind::kProvide) {
      if (!s_.graphs.at(head.graph).running) {
        return broken(group, "its data was uploaded by the client, and all copies were lost");
      }
      group.provided = head.forgotten && head.layers.empty();
      return true;
    }
    for (const std::int64_t point : group.demand) {
      const ir::Index at = ir::unravel(point, counts);
      const Results wanted = wanted_results(head, point);
      if (wanted.none() && is_over(head, at, point)) continue;
      Results lacking = wanted.none() ? all_results(head) : missing(group, wanted, at, point);
      if (lacking.none()) continue;
      const Results found = find(group, lacking & wanted, point);
      lacking &= ~found;
      if (wanted.none() ? found.any() : (lacking & wanted).none()) continue;
      // Whatever has become of it, it has been run by devices like the first one only: a copy may be elsewhere.
      const DeviceId like = head.placement.owner(at);
      std::size_t first = 0;
      while (!lacking[first]) ++first;
      const DeviceId before = holder(head, head.op.outputs[first], at).device;
      const bool doomed = deaths_of(s_, head.id, point) >= kMaxDeaths;
      (doomed ? group.doomed : group.again).push_back({point, before ? before : like, like, lacking});
    }
    if (group.again.empty() && group.doomed.empty()) return can_be_told(group);
    return can_make(group) && can_be_told(group) && ask_for_operands(group, left);
  }

  // All layers of a recovery are one message, and a placement has a limit. At most: each lost device's points are dealt out in
  // one piece a taker.
  bool can_be_told(const Group& group) {
    if (leaver_) return true;
    std::map<std::pair<DeviceId, DeviceId>, std::size_t> from;
    runs_ += group.kept.size() + group.doomed.size();
    for (const auto& [result, runs] : group.apart) runs_ += runs.size();
    for (std::size_t i = 0; i < group.again.size(); ++i) {
      const Point& point = group.again[i];
      const bool next_to_last =
          i > 0 && point.before == group.again[i - 1].before && point.like == group.again[i - 1].like &&
          point.results == group.again[i - 1].results && point.number == group.again[i - 1].number + 1;
      runs_ += next_to_last ? 0 : 1;
      runs_ += deaths_of(s_, group.head->id, point.number) > 0 ? 2 : 0;  // it runs alone
      ++from[{point.before, point.like}];
    }
    for (const auto& [devices, points] : from)
      runs_ += std::min(points, alike(*group.head, devices.second).open.size()) - 1;
    if (runs_ <= s_.options.max_recovered_runs) return true;
    return broken(group, "what is left and what was lost lie in more than " +
                             std::to_string(s_.options.max_recovered_runs) + " pieces");
  }

  bool can_make(Group& group) {
    const OpRecord& head = *group.head;
    total_ += group.again.size();
    if (total_ > s_.options.max_recovered_blocks)
      return broken(group,
                    "more than " + std::to_string(s_.options.max_recovered_blocks) + " blocks were lost");
    if (const GraphRecord& graph = s_.graphs.at(head.graph); graph.cancelled)
      return broken(group, "its request was cancelled", &graph.root_cause);
    if (head.has_failed()) return broken(group, "some of its tasks had failed");
    if (head.cut && !is_from_file(head))
      return broken(group, "its past was cut when it had a second copy, and all copies were lost");
    for (const ir::Operand& operand : head.op.operands) {
      if (s_.arrays.find(ArrayId{operand.array}) == nullptr)
        return broken(group, "what it was made from is no longer known");
    }
    for (const auto* points : {&group.again, &group.doomed}) {
      for (const Point& point : *points) {
        if (alike(head, point.like).open.empty())
          return broken(group, "no device of its numeric class is left");
      }
    }
    return true;
  }

  bool ask_for_operands(Group& group, std::set<OpId>& left) {
    OpRecord& head = *group.head;
    const ir::Geometry& geometry = readers_.geometry_of(head);
    std::vector<ir::Read> reads;
    for (const Point& point : group.again) {
      const ir::Index at = geometry.point(point.number);
      for (std::int64_t step = geometry.steps(at); step-- > 0;) {
        geometry.reads(at, step, reads);
        for (const ir::Read& read : reads) {
          const OpId producer = s_.arrays.at(ArrayId{head.op.operands[read.operand].array}).producer;
          Group& source = groups_[producer];
          source.demand.push_back(read.block);
          const OpRecord* maker = s_.ops.find(producer);
          if (maker != nullptr && maker->op.outputs.size() > 1)
            demanded_.insert({head.op.operands[read.operand].array, read.block});
          if (source.demanded_by.empty() || source.demanded_by.back() != head.id)
            source.demanded_by.push_back(head.id);
          left.insert(producer);
        }
      }
    }
    return true;
  }

  // Some block of it that is wanted, of the points that are to be made again, is nowhere.
  bool is_gone(const Group& group, std::size_t result) {
    const ir::OutputSpec& output = group.head->op.outputs[result];
    const ArrayId id{output.array};
    const auto& blocks = answers_.blocks(id);
    const auto gone = [&](const Point& point) {
      if (!point.results[result]) return false;  // others have it, or will
      if (!demanded_.contains({output.array, point.number}) &&
          !wanted(id, point.number, spent(*group.head, output, point.number)))
        return false;
      return std::none_of(blocks.begin(), blocks.end(), [&](const auto* on) {
        return alive(on->device) && contains(on->sealed, point.number);
      });
    };
    return std::any_of(group.again.begin(), group.again.end(), gone) ||
           std::any_of(group.doomed.begin(), group.doomed.end(), gone);
  }

  // Ends everything that wants what cannot be had. `first`: why the request that was to make it has ended; if that was a loss
  // too, it is what people are to read.
  bool broken(const Group& group, const std::string& why, const msg::Outcome* first = nullptr) {
    if (leaver_) {
      const std::vector<ir::OutputSpec>& outputs = group.head->op.outputs;
      blocked_ = why;
      if (!outputs.empty()) blocked_ = describe(s_.arrays.at(ArrayId{outputs[0].array})) + ": " + why;
      return false;
    }
    std::string lost;
    for (const Peer& peer : s_.peers.all()) {
      if (!peer.alive && peer.info.role == msg::Role::kWorker)
        lost = "worker w" + std::to_string(peer.info.id.value) + " ('" + peer.info.name + "') was lost";
    }
    const bool known = first != nullptr && first->code == Errc::kWorkerLost;
    const auto story = [&](const ArrayRecord& array, const std::string& made_by) {
      if (known) return *first;
      return msg::Outcome{Errc::kWorkerLost,
                          lost + " with blocks of " + describe(array) + made_by + ": " + why};
    };
    ++s_.recovery.unrecoverable;
    ++s_.counts.passes_given_up;
    // A request under way ends. Of one that has ended, what does not hang on the loss stays; a layer under way that reads what
    // is lost fails at its worker, and with it the arrays that it is of.
    // Of several results of a point only those are lost that are nowhere any more, unless the point is being made.
    std::map<OpId, Results> reached{{group.head->id, {}}};  // these at least
    std::vector<OpId> work{group.head->id};
    std::vector<GraphId> graphs;
    const auto reach = [&](OpId id, const Results& results) {
      const auto [known, fresh] = reached.try_emplace(id, results);
      if (!fresh && (results & ~known->second).none()) return;
      known->second |= results;
      work.push_back(id);
    };
    while (!work.empty()) {
      const OpId id = work.back();
      work.pop_back();
      OpRecord& head = s_.ops.at(id);
      if (s_.graphs.at(head.graph).running) graphs.push_back(head.graph);
      const std::vector<ir::OutputSpec>& outputs = head.op.outputs;
      Results gone = reached.at(id);
      for (std::size_t i = 0; i < outputs.size() && groups_[id].head != nullptr; ++i)
        gone[i] = gone[i] || is_gone(groups_[id], i);
      if (gone.none()) gone = all_results(head);
      std::set<std::uint64_t> lost_arrays;
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (!gone[i]) continue;
        ArrayRecord& array = s_.arrays.at(ArrayId{outputs[i].array});
        fail_array(array, story(array, ""));
        lost_arrays.insert(outputs[i].array);
        for (const auto& [user, operand] : readers_.of(array.id)) {
          OpRecord* op = s_.ops.find(user);
          if (op == nullptr || op->finished) continue;
          if (s_.graphs.at(op->graph).running)
            graphs.push_back(op->graph);
          else
            reach(head_of(s_, *op).id, results_of(*op));
        }
      }
      for (const OpId reader : groups_[id].demanded_by) {
        const auto& operands = s_.ops.at(reader).op.operands;
        if (std::any_of(operands.begin(), operands.end(),
                        [&](const ir::Operand& operand) { return lost_arrays.contains(operand.array); }))
          reach(reader, {});
      }
    }
    std::sort(graphs.begin(), graphs.end());
    graphs.erase(std::unique(graphs.begin(), graphs.end()), graphs.end());
    const OpRecord& head = *group.head;
    const std::vector<ir::OutputSpec>& results = head.op.outputs;
    const auto failed = std::find_if(results.begin(), results.end(), [&](const ir::OutputSpec& output) {
      return !s_.arrays.at(ArrayId{output.array}).failed.ok();
    });
    const ArrayRecord& array =
        s_.arrays.at(ArrayId{(failed == results.end() ? results.front() : *failed).array});
    const msg::Outcome outcome = story(array, " (" + describe(s_, head) + ")");
    for (const GraphId graph : graphs) {
      const msg::Outcome earlier =
          s_.graphs.at(graph).root_cause;  // it may have failed before: that is its story
      cancel_graph(s_, graph, earlier.ok() ? outcome : earlier);
    }
    return false;
  }

  // ---- where ----

  struct Alike {
    std::vector<DeviceId> all;   // living ones that make the same bits, rising
    std::vector<DeviceId> open;  // those of them that are to take more
  };

  const Alike& alike(const OpRecord& head, DeviceId like) {
    auto [found, fresh] = alike_.try_emplace({head.op.kind == ir::OpKind::kCall ? head.id : OpId{}, like});
    if (!fresh) return found->second;
    std::vector<DeviceId>& all = found->second.all = devices_like(s_, head, like);
    std::erase_if(all, [&](DeviceId device) { return s_.device(device)->peer == leaver_; });
    std::vector<DeviceId>& open = found->second.open = all;
    if (is_from_file(head)) {  // those first who can read it
      const auto blind = [&](DeviceId device) {
        const WorkerId worker = s_.device(device)->peer;
        return s_.checkpoints.without.contains(worker) || s_.checkpoints.unseen.contains(worker);
      };
      if (!std::all_of(open.begin(), open.end(), blind)) std::erase_if(open, blind);
    }
    const auto draining = [&](DeviceId device) { return s_.device(device)->draining; };
    if (!std::all_of(open.begin(), open.end(), draining)) std::erase_if(open, draining);
    return found->second;
  }

  bool makes_itself(const OpRecord& head, const Point& point) {
    const std::vector<DeviceId>& all = alike(head, point.like).all;
    return std::binary_search(all.begin(), all.end(), point.before);
  }

  // What there is to do, before it is dealt out.
  void sum_up() {
    s_.ops.for_each([&](OpRecord& op) {
      if (op.finished || op.shares.empty()) return;
      const double each = point_seconds(s_, head_of(s_, op));
      for (const OpShare& share : op.shares) {
        std::int64_t left = share.owned - share.completed;
        if (const msg::Held::Share* told = answers_.share(op.id, share.device); told != nullptr) {
          left = share.owned - told->next;
          for (const msg::Range& begun : told->begun) left += begun.count;
        }
        if (alive(share.device)) dealing_.has_to_do(share.device, each * static_cast<double>(left));
      }
    });
    for (const auto& [id, group] : groups_) {
      if (!group.again.empty())
        dealing_.is_made_again(group.head->op,
                               point_seconds(s_, *group.head) * static_cast<double>(group.again.size()));
    }
  }

  // What is made again comes before whoever waits for it, on every device: else readers of a higher priority could be the lowest
  // tasks of several full devices, which alone get memory there, and wait for each other's lost inputs.
  void raise_priorities() {
    for (auto it = groups_.rbegin(); it != groups_.rend(); ++it) {  // readers first
      Group& group = it->second;
      if (group.head == nullptr || group.again.empty()) continue;
      for (const OpId reader : group.demanded_by)
        group.priority = std::max(group.priority, groups_.at(reader).priority);
      for (const ir::OutputSpec& output : group.head->op.outputs) {
        for (const auto& [user, operand] : readers_.of(ArrayId{output.array})) {
          const OpRecord* op = s_.ops.find(user);
          if (op != nullptr && !op->finished)
            group.priority = std::max(group.priority, s_.graphs.at(op->graph).priority);
        }
      }
      group.priority = std::max(group.priority, s_.graphs.at(group.head->graph).priority);
    }
  }

  // What a lost device had is dealt out; what a living one has let go it makes again itself, if it can. By how it is run, and by the results
  // that are to be made.
  std::map<std::pair<Form, unsigned long>, std::vector<ir::Run>> place(const Group& group) {
    const double each = point_seconds(s_, *group.head);
    struct Dealt {
      std::size_t all = 0, so_far = 0;
    };
    std::map<std::pair<DeviceId, DeviceId>, Dealt> dealt;  // what one had, of one kind of bits
    for (const Point& point : group.again) ++dealt[{point.before, point.like}].all;
    std::map<std::pair<Form, unsigned long>, std::vector<ir::Run>> runs;
    for (const Point& point : group.again) {
      Dealt& mine = dealt[{point.before, point.like}];
      const DeviceId device = makes_itself(*group.head, point)
                                  ? point.before
                                  : dealing_.taker(group.head->op, alike(*group.head, point.like).open,
                                                   mine.so_far++, mine.all, each);
      const bool blamed = deaths_of(s_, group.head->id, point.number) > 0;
      ir::append(runs[{blamed ? Form::kAlone : Form::kAgain, point.results.to_ulong()}], point.number,
                 device);
    }
    return runs;
  }

  // ---- layers ----

  // Workers must know every array that an op reads, also those of which it reads nothing this time.
  void introduce_operands(std::vector<msg::Plan>& plans, const OpRecord& op) {
    for (const ir::Operand& operand : op.op.operands) {
      OpRecord& source = s_.ops.at(s_.arrays.at(ArrayId{operand.array}).producer);
      if (!source.retired) continue;
      Group& group = groups_[source.id];
      group.head = &source;
      add_layer(plans, group, {}, source.op.kind == ir::OpKind::kProvide ? Form::kProvided : Form::kKept);
    }
  }

  void add_layer(std::vector<msg::Plan>& plans, const Group& group, std::vector<ir::Run> runs, Form form,
                 const Results& results = {}) {
    scheduler::add_layer(s_, plans, *group.head, std::move(runs), form, group.priority, results);
  }

  State& s_;
  WorkerId leaver_;
  std::string blocked_;                                        // why it cannot leave
  std::vector<MovedBlock> moved_;                              // what is to be elsewhere before
  std::set<std::pair<std::uint64_t, std::int64_t>> demanded_;  // blocks of tasks with several results
  std::size_t total_ = 0;                                      // points that are made again
  std::size_t runs_ = 0;                                       // of all layers, at most
  std::map<OpId, Group> groups_;
  const Answers answers_;
  Readers readers_;
  std::map<std::pair<OpId, DeviceId>, Alike> alike_;
  Dealing dealing_{s_};
};

}  // namespace

Departure plan_departure(State& s, WorkerId leaver) { return Planner(s, leaver).departure(); }

std::vector<msg::Plan> plan_recovery(State& s) {
  // Each failure ends something that was under way or could be named, so this comes to an end.
  while (true) {
    Planner planner(s);
    if (planner.compute()) return planner.commit();
  }
}

}  // namespace tilewise::scheduler
