#include "programs.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <string_view>
#include <thread>
#include <vector>

namespace tilewise::emulated {
namespace {

constexpr std::size_t kTogether = 48;  // programs in one file; more take longer than two files at once

struct Store {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Program>, std::less<>> programs;
  std::vector<Program*> waiting;
  std::mutex compiling;
  int files = 0;
};
Store& store() {
  static Store* const one = new Store;
  return *one;
}

[[noreturn]] void stop(const std::string& story) {
  std::fprintf(stderr, "emulated GPU: %s\n", story.c_str());
  std::abort();
}

// Compiled files live until the process ends.
const std::string& folder() {
  static const std::string made = [] {
    std::string pattern = (std::filesystem::temp_directory_path() / "tilewise-emulated-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) stop("no temporary folder " + pattern);
    static const struct Cleaner {
      std::string path;
      ~Cleaner() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
      }
    } cleaner{pattern};
    return pattern;
  }();
  return made;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
}

// What is written differently: parameters that threads share, PTX.
std::string as_cpp(std::string text) {
  replace_all(text, "extern \"C\" __global__", "__global__");
  replace_all(text, R"(asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));)",
              "value = tilewise_emulated_from_f16(bits);");
  replace_all(text, R"(asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));)",
              "bits = tilewise_emulated_to_f16(value);");
  static const std::regex parameter(R"(const __grid_constant__ (\w+) (\w+))");
  return std::regex_replace(text, parameter, "const $1& $2");
}

std::string entries_of(const std::string& text) {
  static const std::regex kernel(
      R"(__global__ void __launch_bounds__\(\w+\)\s+(\w+)\(\s*const __grid_constant__ (\w+) \w+\))");
  std::string table, calls;
  for (std::sregex_iterator it(text.begin(), text.end(), kernel), end; it != end; ++it) {
    const std::string name = (*it)[1], type = (*it)[2];
    // Kernels between #ifdefs are there or not.
    const std::string guard = name == "tw_combine" ? "TW_COMBINE" : "";
    if (!guard.empty() && text.find("#define " + guard) == text.npos) continue;
    calls += "void call_" + name + "(const void* parameters) { " + name + "(*(const " + type +
             "*)parameters); }\n";
    table += "  {\"" + name + "\", sizeof(" + type + "), call_" + name + "},\n";
  }
  return calls + "const EmulatedEntry entries[] = {\n" + table + "  {nullptr, 0, nullptr}};\n";
}

// The macros that a program defines, for one file has only programs that define the same.
std::string macros_of(const std::string& text) {
  static const std::regex definition(R"((^|\n)#define (\w+))");
  std::string names;
  for (std::sregex_iterator it(text.begin(), text.end(), definition), end; it != end; ++it)
    names += std::string((*it)[2]) + " ";
  return names;
}

// What all begin with, up to the end of a declaration: compiled once, in the namespace around them. (What comes after
// may hide functions of it, never add overloads; all of complex.cuh is there or nothing of it.)
std::size_t shared_length(const std::vector<Program*>& programs) {
  if (programs.size() < 2) return 0;
  std::string_view shared = programs[0]->source;
  for (const Program* p : programs) {
    const auto differs = std::mismatch(shared.begin(), shared.end(), p->source.begin(), p->source.end());
    shared = shared.substr(0, static_cast<std::size_t>(differs.first - shared.begin()));
  }
  const auto end = shared.rfind("\n}\n");
  return end == shared.npos ? 0 : end + 3;
}

std::string file_of(const std::vector<Program*>& programs) {
  std::string text = "#include \"" TILEWISE_EMULATED_WORDS "\"\nnamespace {\n";
  const std::size_t shared = shared_length(programs);
  text += as_cpp(programs[0]->source.substr(0, shared));
  std::string tables;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const std::string name = "p" + std::to_string(i), own = programs[i]->source.substr(shared);
    text += "namespace " + name + " {\n" + as_cpp(own) + entries_of(own) + "}\n";
    tables += "  " + name + "::entries,\n";
  }
  return text +
         "}\nextern \"C\" const EmulatedEntry* const tilewise_emulated_programs[];\n"
         "const EmulatedEntry* const tilewise_emulated_programs[] = {\n" +
         tables + "};\n";
}

std::string run(const std::string& command) {  // its output if it fails
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "cannot start " + command;
  std::string output(1, '\n');
  char piece[4096];
  while (const std::size_t n = std::fread(piece, 1, sizeof piece, pipe)) output.append(piece, n);
  return ::pclose(pipe) == 0 ? "" : command + output;
}

void compile(const std::vector<Program*>& programs, int number) {
  const std::string name = std::to_string(number), base = folder() + "/" + name;
  std::ofstream(base + ".cc") << file_of(programs);
  // As NVRTC is told to (no contraction), and as machines would have it (wrapping, no type-based aliasing). What a GPU
  // answers with an error ends the process: accesses that are not aligned, or outside of an array. Not optimised: most
  // programs run once. Compiled and linked apart, with relative names, so that a compiler cache knows them again.
  const std::string failed = run(
      "cd " + folder() +
      " && " TILEWISE_EMULATED_COMPILER
      " -std=c++20 -O0 -fPIC -w -ffp-contract=off -fno-math-errno -fno-strict-aliasing -fwrapv "
      "-fno-exceptions"
      " -fno-rtti -fsanitize=alignment,bounds,float-cast-overflow -fsanitize-undefined-trap-on-error -c -o " +
      name + ".o " + name + ".cc && " TILEWISE_EMULATED_LINKER " -shared -o " + name + ".so " + name + ".o");
  if (!failed.empty()) stop("a program does not compile:\n" + failed);
  void* const library = ::dlopen((base + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) stop(::dlerror());
  const auto* const tables =
      static_cast<const EmulatedEntry* const*>(::dlsym(library, "tilewise_emulated_programs"));
  for (std::size_t i = 0; i < programs.size(); ++i) programs[i]->entries.store(tables[i]);
}

void compile_waiting() {
  std::vector<Program*> all;
  int first = 0;
  {
    const std::lock_guard lock(store().mutex);
    all.swap(store().waiting);
    first = store().files;
  }
  if (all.empty()) return;
  const auto begin = std::chrono::steady_clock::now();
  std::map<std::string, std::vector<Program*>> groups;
  for (Program* p : all) groups[macros_of(p->source)].push_back(p);
  std::vector<std::vector<Program*>> files;
  for (auto& [macros, group] : groups) {
    std::sort(group.begin(), group.end(),
              [](const Program* a, const Program* b) { return a->source < b->source; });
    for (std::size_t i = 0; i < group.size(); i += kTogether)
      files.emplace_back(group.begin() + static_cast<std::ptrdiff_t>(i),
                         group.begin() + static_cast<std::ptrdiff_t>(std::min(group.size(), i + kTogether)));
  }
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < files.size();) compile(files[i], first + static_cast<int>(i));
  };
  {
    std::vector<std::jthread> others;
    const std::size_t most = std::max(1u, std::thread::hardware_concurrency());
    for (std::size_t i = 1; i < std::min(most, files.size()); ++i) others.emplace_back(work);
    work();
  }
  {
    const std::lock_guard lock(store().mutex);
    store().files += static_cast<int>(files.size());
  }
  if (std::getenv("TILEWISE_EMULATED_VERBOSE") != nullptr)
    std::fprintf(stderr, "emulated GPU: %zu programs in %zu files compiled in %.1f s\n", all.size(),
                 files.size(),
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

}  // namespace

Program& program_of(const std::string& source) {
  const std::lock_guard lock(store().mutex);
  auto& slot = store().programs[source];
  if (!slot) {
    slot = std::make_unique<Program>();
    slot->source = source;
    slot->has_barriers = source.find("__syncthreads") != source.npos;
    store().waiting.push_back(slot.get());
  }
  return *slot;
}

bool has_kernel(const Program& program, const std::string& name) {
  return program.source.find(name + "(") != program.source.npos;
}

const EmulatedEntry& compiled(Program& program, const std::string& name) {
  if (program.entries.load() == nullptr) {
    const std::lock_guard lock(store().compiling);
    if (program.entries.load() == nullptr) compile_waiting();
  }
  const EmulatedEntry* entry = program.entries.load();
  while (entry->name != nullptr && name != entry->name) ++entry;
  if (entry->name == nullptr) stop("a program has no kernel " + name);
  return *entry;
}

}  // namespace tilewise::emulated
