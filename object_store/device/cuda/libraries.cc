#include <dlfcn.h>
#include <tilewise/cuda/libraries.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace tilewise::cuda {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> split_path(const char* value) {
  std::vector<std::string> parts;
  if (value == nullptr) return parts;
  std::string_view rest = value;
  while (!rest.empty()) {
    const auto colon = std::min(rest.find(':'), rest.size());
    if (colon > 0) parts.emplace_back(rest.substr(0, colon));
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return parts;
}

// Entries of `folder` whose name starts with `prefix`, sorted.
std::vector<std::string> entries(const fs::path& folder, std::string_view prefix) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& entry :
       fs::directory_iterator(folder, fs::directory_options::skip_permission_denied, ignored))
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path().string());
  std::sort(found.begin(), found.end());
  return found;
}

// <prefix>/lib/python3*/{site,dist}-packages/nvidia/*/lib: where pip puts the wheels nvidia-cublas and its kin
// (cuda 12: nvidia/cublas/lib; cuda 13: nvidia/cu13/lib).
void add_python_folders(const fs::path& prefix, std::vector<std::string>& folders) {
  for (const auto& python : entries(prefix / "lib", "python3"))
    for (const char* packages : {"site-packages", "dist-packages"})
      for (const auto& wheel : entries(fs::path(python) / packages / "nvidia", ""))
        folders.push_back(wheel + "/lib");
}

void add_all_python_folders(std::vector<std::string>& folders) {
  if (const char* environment = std::getenv("VIRTUAL_ENV")) add_python_folders(environment, folders);
  for (const auto& folder : split_path(std::getenv("PATH"))) {
    std::error_code missing;
    const fs::path python = fs::path(folder) / "python3";
    if (!fs::exists(python, missing)) continue;
    // A virtual environment's python3 is a link; its packages lie beside the link, the system's beside the target.
    add_python_folders(fs::path(folder).parent_path(), folders);
    const fs::path real = fs::canonical(python, missing);
    if (!missing) add_python_folders(real.parent_path().parent_path(), folders);
  }
}

std::vector<std::string> toolkit_folders(const LibrarySpec& spec) {
  std::vector<std::string> folders = split_path(std::getenv(spec.environment.c_str()));
  std::vector<std::string> homes;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* value = std::getenv(variable)) homes.emplace_back(value);
  homes.emplace_back("/usr/local/cuda");
  for (const auto& home : homes) {
    folders.push_back(home + "/lib64");
    folders.push_back(home + "/targets/x86_64-linux/lib");
  }
  return folders;
}

void* open_in(const std::string& folder, const LibrarySpec& spec, const std::string& soname,
              std::string& path) {
  std::error_code missing;
  if (!fs::exists(folder, missing)) return nullptr;
  // An environment variable may name the file itself.
  path = fs::is_directory(folder, missing) ? folder + "/" + soname : folder;
  if (!fs::exists(path, missing)) return nullptr;
  for (const auto& prefix : spec.companions)
    for (const auto& companion : entries(fs::path(path).parent_path(), prefix))
      if (companion.find(".alt.") == std::string::npos) ::dlopen(companion.c_str(), RTLD_NOW | RTLD_GLOBAL);
  return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

std::string version_with(const Library& library, const char* getter) {
  // nvrtcVersion(int*, int*), or as cublasGetProperty(libraryPropertyType, int*).
  void* function = symbol(library, getter);
  if (function == nullptr) return "?";
  int part[3] = {0, 0, 0};
  if (std::string_view(getter) == "nvrtcVersion") {
    reinterpret_cast<int (*)(int*, int*)>(function)(&part[0], &part[1]);
    return std::to_string(part[0]) + "." + std::to_string(part[1]);
  }
  for (int i = 0; i < 3; ++i) reinterpret_cast<int (*)(int, int*)>(function)(i, &part[i]);
  return std::to_string(part[0]) + "." + std::to_string(part[1]) + "." + std::to_string(part[2]);
}

std::vector<int> majors(int preferred) {
  std::vector<int> all{13, 12};
  if (preferred > 0) {
    std::erase(all, preferred);
    all.insert(all.begin(), preferred);
  }
  return all;
}

}  // namespace

LibrarySpec nvrtc_library(int preferred_major) {
  return {"nvrtc", "TILEWISE_NVRTC_PATH", {"libnvrtc-builtins.so."}, majors(preferred_major)};
}

LibrarySpec cublas_library(int preferred_major) {
  return {"cublas", "TILEWISE_CUBLAS_PATH", {"libcublasLt.so."}, majors(preferred_major)};
}

// Their own numbers run behind the toolkit's.
LibrarySpec cusolver_library(int preferred_major) {
  LibrarySpec spec{"cusolver",
                   "TILEWISE_CUSOLVER_PATH",
                   {"libnvJitLink.so.", "libcublasLt.so.", "libcublas.so.", "libcusparse.so."},
                   majors(preferred_major)};
  for (int& major : spec.majors) --major;
  return spec;
}
LibrarySpec cufft_library(int preferred_major) {
  LibrarySpec spec{"cufft", "TILEWISE_CUFFT_PATH", {}, majors(preferred_major)};
  for (int& major : spec.majors) --major;
  return spec;
}

std::vector<std::string> library_folders(const LibrarySpec& spec) {
  std::vector<std::string> folders = toolkit_folders(spec);
  add_all_python_folders(folders);
  return folders;
}

Result<Library> open_library(const LibrarySpec& spec) {
  const auto toolkit = toolkit_folders(spec);
  std::vector<std::string> python;
  add_all_python_folders(python);
  std::string path;
  for (const int major : spec.majors) {
    const std::string soname = "lib" + spec.name + ".so." + std::to_string(major);
    for (const auto& folder : toolkit)
      if (void* handle = open_in(folder, spec, soname, path)) return Library{handle, path};
    if (void* handle = ::dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL)) return Library{handle, soname};
    for (const auto& folder : python)
      if (void* handle = open_in(folder, spec, soname, path)) return Library{handle, path};
  }
  std::string message =
      "lib" + spec.name + ".so." + std::to_string(spec.majors.front()) + " not found; looked in";
  for (const auto& folder : library_folders(spec)) message += " " + folder;
  return error(Errc::kUnavailable, message + " and the loader's path; set " + spec.environment);
}

void* symbol(const Library& library, const char* name) { return ::dlsym(library.handle, name); }

std::string library_versions(int preferred_major) {
  std::string text;
  if (auto nvrtc = open_library(nvrtc_library(preferred_major)))
    text += "nvrtc " + version_with(*nvrtc, "nvrtcVersion");
  const auto add = [&](const LibrarySpec& spec, const char* getter) {
    if (auto library = open_library(spec))
      text += (text.empty() ? "" : ", ") + spec.name + " " + version_with(*library, getter);
  };
  add(cublas_library(preferred_major), "cublasGetProperty");
  add(cusolver_library(preferred_major), "cusolverGetProperty");
  add(cufft_library(preferred_major), "cufftGetProperty");
  return text;
}

}  // namespace tilewise::cuda
