// A world may take its process down: by a check of a core, a signal, a sanitizer's report, or because it never ends. Before it does, the
// one command that runs it again is printed, and then, by a process of its own, that of a smaller one that ends in the same way.
#pragma once
#include <cstdint>
#include <ctime>
#include <string>

namespace tilewise::sim {

struct Again {                      // how a world is run again
  std::string test_case, variable;  // of its family
  std::uint64_t seed = 0;
  std::string changes;  // of its knobs, as `with` (shrink.h) takes them
};

// For a shell, in the repository's root.
std::string command(const Again& world);

// From the beginning to the end of a world; one at a time.
class LastWords {
 public:
  // `shrinks`: what is left is made smaller. A world that takes more of the processor's time than `longest_s` does not end.
  LastWords(const Again& world, bool shrinks, time_t longest_s);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
};

// What a process may die of besides a signal, for Knobs::dies; the latter two in a build with AddressSanitizer and
// UndefinedBehaviorSanitizer only.
enum Death : int { kStackOverflow = 1001, kOutOfBounds = 1002, kUndefined = 1003 };
void die_of(int signal_or_death);

// As a process begins: signals that LastWords waits for do what they do to any.
void forget_last_words();

}  // namespace tilewise::sim
