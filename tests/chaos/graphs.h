// Work with known answers: what a request of each kind must bring, bit for bit, whatever is done to the cluster meanwhile.
#pragma once
#include <tilewise/tilewise.h>

#include <string>
#include <vector>

#include "settings.h"

namespace tilewise::testing {

// Whoever asks for a graph. `file`: a name that nobody else uses, on the workers' host. `turns`: minutes that a request may take while
// something of it gets done in each.
struct Asking {
  const Session& session;
  std::string file;
  int turns;
  Counts& counts;
};

class Graphs {
 public:
  // `large`: 1e4 tasks and more each. `only`: the kind of this name, or all. `turns`: of a request (Asking). `folder`: on the workers'
  // host, for files. Throws std::invalid_argument where there is no such kind.
  Graphs(bool large, const std::string& only, int turns, std::string folder);

  // What is right: from a cluster of other workers, inside this process, which has none of the paths between processes.
  void learn(Counts& counts);
  // One request of each kind, before anything is disturbed.
  void try_each(const Session& session, Counts& counts) const;
  // One request after another, as the seed says, until told to stop or one has failed.
  void work(const Session& session, std::uint64_t seed, const std::atomic<bool>& stop, Counts& counts) const;

 private:
  struct Kind {
    std::string name;
    // What it needs may be gone with workers, uploads and files; else whatever is lost can be made again.
    bool can_be_lost;
    std::vector<double> (*run)(const Asking&);
  };
  std::vector<double> ask(const Kind& kind, const Session& session, const std::string& file,
                          Counts& counts) const;
  void compare(const std::vector<double>& values, std::size_t kind, Counts& counts) const;

  const bool large_;
  const int turns_;
  const std::string folder_;
  std::vector<Kind> kinds_;
  std::vector<std::vector<double>> right_;
};

}  // namespace tilewise::testing
