#include "beside.h"

#include <cblas.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <stdexcept>

namespace tilewise::bench {

double persist_seconds(Array expression) {
  return seconds_of([&] { expression.persist().wait(); });
}

template <class T> Numbers<T>::Numbers(std::int64_t n) : bytes_(static_cast<std::size_t>(n) * sizeof(T)) {
  void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  madvise(at, bytes_, MADV_HUGEPAGE);
  at_ = static_cast<T*>(at);
  two_threads(n, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      at_[i] = static_cast<T>(static_cast<double>((i * 2'654'435'761) % 1000 + 1) / 1001);
  });
}
template <class T> Numbers<T>::~Numbers() { munmap(at_, bytes_); }
template class Numbers<double>;
template class Numbers<float>;

double raw_matmul(std::int64_t n, const double* a, const double* b, double* c) {
  const int side = static_cast<int>(n);
  return seconds_of([&] {
    two_threads(n, [&](std::int64_t begin, std::int64_t end, int) {
      cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(end - begin), side, side, 1.0,
                  a + begin * n, side, b, side, 0.0, c + begin * n, side);
    });
  });
}
double raw_matmul(std::int64_t n, const float* a, const float* b, float* c) {
  const int side = static_cast<int>(n);
  return seconds_of([&] {
    two_threads(n, [&](std::int64_t begin, std::int64_t end, int) {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(end - begin), side, side, 1.0f,
                  a + begin * n, side, b, side, 0.0f, c + begin * n, side);
    });
  });
}

NumPy::NumPy(std::int64_t n, const char* dtype) {
  int to[2], from[2];
  if (pipe(to) != 0 || pipe(from) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    dup2(to[0], 0);
    dup2(from[1], 1);
    for (int fd = 3; fd < 64; ++fd) close(fd);
    const std::string count = std::to_string(n);
    execlp("python3", "python3", BENCH_NUMPY_SIDE, count.c_str(), dtype, nullptr);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  in_ = fdopen(from[0], "r");
  out_ = fdopen(to[1], "w");
  char word[16] = "", version[48] = "", numexpr[48] = "";
  if (std::fscanf(in_, "%15s %47s %47s", word, version, numexpr) == 3 && std::strcmp(word, "ready") == 0) {
    version_ = version;
    if (std::strcmp(numexpr, "-") != 0) numexpr_ = numexpr;
  }
}

NumPy::~NumPy() {
  if (out_ != nullptr) std::fclose(out_);
  if (in_ != nullptr) std::fclose(in_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

std::pair<double, double> NumPy::ask(const std::string& expression) {
  std::pair<double, double> answer;
  std::fputs((expression + "\n").c_str(), out_);
  std::fflush(out_);
  if (std::fscanf(in_, "%lf %lf", &answer.first, &answer.second) != 2)
    throw std::runtime_error("NumPy went away over " + expression);
  return answer;
}

}  // namespace tilewise::bench
