// Checkpoints in a simulated folder that all workers see, or of which each host has its own: what their kernels do there
// (object_store/io/checkpoint.cc), disks that are full or fail, files that somebody removes or spoils, and what must be left of it all.
#include "world_parts.h"

#include <tilewise/ir/checkpoint.h>

namespace tilewise::sim {
namespace {

namespace names = ir::checkpoint;

constexpr Counted kWhatFailed[] = {"failed looks at the folder", "checkpoints that could not be made",
                                   "failed writes to checkpoints", "checkpoints that did not become durable",
                                   "failed reads from checkpoints"};

const ir::CallAttrs* checkpoint_call(const worker::Launch& launch) {
  if (launch.op->op.kind != ir::OpKind::kCall) return nullptr;
  const auto& call = launch.op->op.get<ir::CallAttrs>();
  return names::is_kernel(call.kernel) ? &call : nullptr;
}

}  // namespace

Knobs Knobs::files(std::uint64_t seed) {
  Knobs k = storm(seed);
  Prng p(seed * 0xF11E + 59);
  k.checkpoint_files = true;
  k.gpu_every = 0;
  if (k.pairs == 0 && p.chance(0.5)) k.pairs = 0.3;
  k.slab_fails = 0;
  k.memory_bytes = 4 << 20;
  k.uploads = p.chance(0.3);
  k.recovery_wait_ns = 30 * kSecond;
  k.workers = p.chance(0.7) ? 1 : static_cast<int>(p.between(2, 3));  // others would have copies
  k.requests = static_cast<int>(p.between(4, 9));
  k.recompute_ops = static_cast<int>(p.between(1, 3));
  k.kills = static_cast<int>(p.between(1, 4));
  k.respawn = 1;
  k.kill_span_ns = p.between(20, 300) * std::max<TimeNs>(k.max_delay_ns, 100'000);
  if (p.chance(0.5)) k.file_fails = p.uniform() * 0.3;
  if (p.chance(0.4)) k.file_losses = static_cast<int>(p.between(1, 4));
  if (p.chance(0.5)) {
    k.scheduler_crashes = static_cast<int>(p.between(1, 3));
    k.checkpoint = p.uniform() * 0.2;
    k.new_folder = p.chance(0.6) ? 0.7 : 0;
  }
  if (p.chance(0.2)) k.hosts = 2, k.own_folders = true;
  return k;
}

// What the worker finds at the path.
World::Folder& World::folder_of(int index, const std::string& path) {
  return folders_[{knobs_.own_folders ? host_of(index) : 0, path}];
}

std::string World::tend_folder(int index, const std::string& params) {
  const names::Folder wanted = *names::parse_folder(params);
  Folder& folder = folder_of(index, wanted.path);
  if (wanted.first) folder.markers.insert(wanted.marker);
  if (!folder.markers.contains(wanted.marker)) return "not the folder that other workers see";
  std::erase_if(folder.markers,
                [&](std::uint64_t marker) { return marker < wanted.below && marker != wanted.marker; });
  std::erase_if(folder.files, [&](const auto& file) {
    const bool goes = file.first < wanted.below &&
                      std::find(wanted.keep.begin(), wanted.keep.end(), file.first) == wanted.keep.end();
    outcome_.covered["files of nobody removed"] += goes;
    return goes;
  });
  return "";
}

// A block of which something has been written is neither the old nor the new one.
void World::begin_on_file(int index, const worker::Launch& launch) {
  const ir::CallAttrs* call = checkpoint_call(launch);
  if (!knobs_.checkpoint_files || call == nullptr || call->kernel != names::kWrite) return;
  const names::File wanted = *names::parse_file(call->params);
  auto& files = folder_of(index, wanted.folder).files;
  if (const auto file = files.find(wanted.id); file != files.end()) file->second.blocks[launch.point] = kTorn;
}

// What the step does to the folder. `restored`: what it has read, for each result. Empty: it went well.
std::string World::on_file(int index, const worker::Launch& launch,
                           std::vector<std::optional<std::uint64_t>>& restored) {
  const ir::CallAttrs* call = checkpoint_call(launch);
  if (!knobs_.checkpoint_files || call == nullptr) return "";
  const std::string& kernel = call->kernel;
  const std::string_view kernels[] = {names::kTend, names::kCreate, names::kWrite, names::kCommit,
                                      names::kRestore};
  const auto which =
      static_cast<std::size_t>(std::find(std::begin(kernels), std::end(kernels), kernel) - kernels);
  if (which == std::size(kernels)) return "no such kernel";
  const bool fails = prng_.chance(knobs_.file_fails);
  if (fails) ++outcome_.covered[kWhatFailed[which]];
  if (kernel == names::kTend) {
    Folder& folder = folder_of(index, names::parse_folder(call->params)->path);
    const std::string wrong = fails ? "simulated" : tend_folder(index, call->params);
    folder.tended = wrong.empty();
    if (wrong.empty()) ++outcome_.covered["folders tended"];
    return wrong;
  }
  if (kernel == names::kRestore) {
    const names::Files files = *names::parse_files(call->params);
    outcome_.covered["results of one op read from their checkpoints"] += files.size() > 1;
    for (const std::optional<names::File>& file : files) {
      restored.emplace_back();
      if (!file) continue;
      const std::string wrong = fails ? "simulated" : restore(index, *file, launch.point, restored.back());
      if (!wrong.empty())
        return "blocks of " + file->array +
               " were lost with a worker, and cannot be read from their checkpoint: " + wrong;
    }
    return "";
  }
  const names::File wanted = *names::parse_file(call->params);
  Folder& folder = folder_of(index, wanted.folder);
  if (fails) return "simulated";
  if (kernel == names::kCreate) {
    if (folder.markers.empty()) return "no such folder";
    if (prng_.chance(knobs_.file_fails)) {
      ++outcome_.covered["no room for a checkpoint"];
      return "no space left";
    }
    folder.tended = false;
    CheckpointFile& made = folder.files[wanted.id];
    made.bytes = wanted.bytes, made.spoilt = false;
    return "";
  }
  CheckpointFile* file = nullptr;
  if (const std::string wrong = find_file(folder, wanted, file); !wrong.empty()) return wrong;
  if (kernel == names::kCommit) {
    ++outcome_.covered["checkpoints made durable"];
    durable_.insert(wanted.id);
  } else {
    const Cell* cell = cell_at(launch.inputs[0]);
    file->blocks[launch.point] = cell == nullptr ? 0 : cell->value;  // of no bytes: none
  }
  return "";
}

std::string World::find_file(Folder& folder, const names::File& wanted, CheckpointFile*& file) {
  const auto at = folder.files.find(wanted.id);
  if (at == folder.files.end()) return "no such file";
  file = &at->second;
  if (!file->spoilt && file->bytes == wanted.bytes) return "";
  ++outcome_.covered["steps that found a spoilt checkpoint"];
  return "not the checkpoint that was written there";
}

std::string World::restore(int index, const names::File& wanted, std::int64_t point,
                           std::optional<std::uint64_t>& value) {
  CheckpointFile* file = nullptr;
  const std::string wrong = find_file(folder_of(index, wanted.folder), wanted, file);
  if (file == nullptr) {
    if (!taken_.contains(wanted.id) && !knobs_.own_folders)
      violate("a checkpoint that is still needed was removed");
    ++outcome_.covered["checkpoints that were not there"];
  }
  if (!wrong.empty()) return wrong;
  if (!durable_.contains(wanted.id)) violate("a block is read from a checkpoint that is not durable");
  ++outcome_.covered["blocks read from checkpoints"];
  if (wanted.folder != scheduler_options_.checkpoint_dir)
    ++outcome_.covered["blocks read from the folder of a life before"];
  const auto block = file->blocks.find(point);
  value = block == file->blocks.end() ? kTorn : block->second;
  return "";
}

// Somebody removes a file, cuts it, writes over its beginning, or takes the whole folder away.
void World::lose_file() {
  std::vector<std::pair<Folder*, std::uint64_t>> all;
  for (auto& [where, folder] : folders_) {
    for (const auto& [id, file] : folder.files) all.emplace_back(&folder, id);
  }
  if (all.empty()) return;
  const auto [folder, id] = all[prng_.below(all.size())];
  if (prng_.chance(0.1)) {
    ++outcome_.covered["folders taken away"];
    for (const auto& [each, file] : folder->files) taken_.insert(each);
    *folder = {};
  } else if (prng_.chance(0.4)) {
    ++outcome_.covered["checkpoint files removed"];
    folder->files.erase(id);
    taken_.insert(id);
  } else if (prng_.chance(0.5)) {
    ++outcome_.covered["checkpoint files cut"];
    folder->files.at(id).bytes -= 1;
  } else {
    ++outcome_.covered["checkpoint files written over"];
    folder->files.at(id).spoilt = true;
  }
}

void World::note_death_on_file(const Worker& worker) {
  for (const auto& device : worker.streams) {
    for (const Worker::Stream& stream : device) {
      const ir::CallAttrs* call = stream.busy ? checkpoint_call(stream.queue.front()) : nullptr;
      if (call == nullptr) continue;
      ++outcome_.covered[call->kernel == names::kTend      ? Counted("killed while it looked at the folder")
                         : call->kernel == names::kRestore ? Counted("killed while it read a checkpoint")
                                                           : Counted("killed while it wrote a checkpoint")];
    }
  }
}

// The next life may be told of another folder.
void World::choose_folder() {
  if (!knobs_.checkpoint_files || !prng_.chance(knobs_.new_folder)) return;
  ++outcome_.covered["lives with another folder"];
  scheduler_options_.checkpoint_dir = "/shared/" + std::to_string(++lives_);
}

bool World::file_unread() const {
  return happened({"failed reads from checkpoints", "checkpoints that were not there",
                   "steps that found a spoilt checkpoint"});
}

// All arrays have been released: no file is left, unless who looked last could not remove it.
void World::check_files() {
  if (!knobs_.checkpoint_files) return;
  const scheduler::View view = scheduler_->view(scheduler::OverviewRequest{}, now_);
  const auto& overview = std::get<scheduler::Overview>(view);
  if (overview.checkpoints != 0)
    violate(std::to_string(overview.checkpoints) + " checkpoints are kept of arrays that are gone");
  for (const auto& [where, folder] : folders_) {
    bool seen = false;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      seen = seen || (workers_[w]->takes_part() && workers_[w]->core != nullptr &&
                      (!knobs_.own_folders || where.first == host_of(static_cast<int>(w))));
    }
    if (!seen || !folder.tended || where.second != scheduler_options_.checkpoint_dir) {
      ++outcome_.covered["folders that nobody tends any more"];
      continue;
    }
    ++outcome_.covered["folders left clean"];
    if (!folder.files.empty())
      violate(std::to_string(folder.files.size()) + " files that nobody knows are left in " + where.second);
  }
}

}  // namespace tilewise::sim
