// fuzz_driver FORM FOLDER: runs the scripts that fuzz.py writes on stdin, on an embedded cluster of that form. FOLDER is for files.
// `fuzz_driver --forms` lists the forms.
//
//   program SEED                        forgets all arrays
//   input ID DTYPE SHAPE BLOCK BYTES    an array of these bytes (hexadecimal, C order); "-" is no extent, no block, no byte
//   call NAME RESULTS OPERANDS KEY=VALUE...      call.h
//   persist ID   drop ID   store ID BLOCK        store: through a .npy file
//   fetch ID...                         one: Array::get; several: Session::compute
//
// Answers: "program SEED"; "result ID DTYPE SHAPE BYTES"; "error ID TEXT", an error of the library's, with the array that is not there
// because of it; "missing ID", asked for an array that is not there because of an earlier error; "end", when all is done.
// The exit status is 2 where a script makes no sense.
#include <tilewise/embedded/cluster.h>
#include <tilewise/io/stored.h>

#include <algorithm>
#include <iostream>
#include <sstream>

#include "call.h"

using namespace tilewise;
using namespace tilewise::fuzz;

namespace {

struct Form {
  const char* name;
  embedded::ClusterOptions options;
};

const std::vector<Form> kForms = {
    {"one-worker", {.workers = 1, .host_devices = 3, .memory_bytes = 64 << 20, .spin_ns = 0}},
    {"two-workers", {.workers = 2, .host_devices = 2, .memory_bytes = 64 << 20, .spin_ns = 0}},
    {"unmapped",
     {.workers = 3, .host_devices = 1, .memory_bytes = 64 << 20, .map_peers = false, .spin_ns = 0}},
    {"hosts",
     {.workers = 4,
      .host_devices = 1,
      .memory_bytes = 64 << 20,
      .map_peers = false,
      .workers_a_host = 1,
      .spin_ns = 0}},
    {"spilling",
     {.workers = 2, .host_devices = 2, .memory_bytes = 1 << 20, .spill_bytes = 1 << 30, .spin_ns = 0}},
    {"starved",
     {.workers = 2, .host_devices = 2, .memory_bytes = 128 << 10, .spill_bytes = 1 << 30, .spin_ns = 0}},
    {"shared-cores", {.workers = 3, .host_devices = 1, .cores = 2, .memory_bytes = 64 << 20}},
    {"reference",
     {.workers = 1, .host_devices = 2, .memory_bytes = 64 << 20, .reference_kernels = true, .spin_ns = 0}},
};

std::string to_hex(const void* data, std::size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::string out;
  out.reserve(2 * size);
  for (std::size_t i = 0; i < size; ++i) {
    out += kDigits[bytes[i] >> 4];
    out += kDigits[bytes[i] & 15];
  }
  return out.empty() ? "-" : out;
}

std::vector<std::byte> from_hex(const std::string& text) {
  if (text == "-") return {};
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<std::byte> out(text.size() / 2);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>(digit(text[2 * i]) * 16 + digit(text[2 * i + 1]));
  return out;
}

template <class T> std::string to_hex(const std::vector<T>& values) {
  if constexpr (std::same_as<T, bool>) {
    const std::vector<unsigned char> bytes(values.begin(), values.end());
    return to_hex(bytes.data(), bytes.size());
  } else {
    return to_hex(values.data(), values.size() * sizeof(T));
  }
}

// `get` is called with a value of the type that elements of this dtype have.
template <class Get> std::string elements(DType dtype, const Get& get) {
  switch (dtype) {
    case DType::kBool: return to_hex(get(bool()));
    case DType::kInt8: return to_hex(get(std::int8_t()));
    case DType::kInt16: return to_hex(get(std::int16_t()));
    case DType::kInt32: return to_hex(get(std::int32_t()));
    case DType::kInt64: return to_hex(get(std::int64_t()));
    case DType::kUInt8: return to_hex(get(std::uint8_t()));
    case DType::kUInt16: return to_hex(get(std::uint16_t()));
    case DType::kUInt32: return to_hex(get(std::uint32_t()));
    case DType::kUInt64: return to_hex(get(std::uint64_t()));
    case DType::kFloat16: return to_hex(get(Float16()));
    case DType::kBFloat16: return to_hex(get(BFloat16()));
    case DType::kFloat32: return to_hex(get(float()));
    case DType::kFloat64: return to_hex(get(double()));
    case DType::kComplex64: return to_hex(get(std::complex<float>()));
    case DType::kComplex128: return to_hex(get(std::complex<double>()));
  }
  throw ScriptError("a dtype that this driver does not know");
}

// An operand that an earlier error has left without a value: told where that happened.
struct MissingOperand {};

class Driver {
 public:
  Driver(Session session, std::string folder) : session_(std::move(session)), folder_(std::move(folder)) {
    for (Ops ops : {elementwise_ops(), movement_ops(), reduction_ops(), indexing_ops(), counting_ops(),
                    linalg_ops(), creation_ops()})
      ops_.merge(ops);
  }

  void run(std::istream& script) {
    for (std::string line; std::getline(script, line);) {
      std::istringstream in(line);
      std::vector<std::string> words;
      for (std::string word; in >> word;) words.push_back(word);
      if (words.empty()) continue;
      blamed_ = 0;
      try {
        obey(words);
      } catch (const ArrayError& e) {
        std::string text = e.what();
        std::replace(text.begin(), text.end(), '\n', ' ');
        std::cout << "error " << blamed_ << ' ' << text << '\n';
      } catch (const MissingOperand&) {
      }
    }
    std::cout << "end" << std::endl;
  }

 private:
  void obey(const std::vector<std::string>& words) {
    const std::string& word = words[0];
    if (word == "program") {
      arrays_.clear();
      std::cout << "program " << words.at(1) << std::endl;  // so that it is known who crashes
    } else if (word == "input") {
      input(words);
    } else if (word == "call") {
      call(words);
    } else if (word == "persist") {
      find(words.at(1)).persist().wait();
    } else if (word == "drop") {
      arrays_.erase(to_integer(words.at(1)));
    } else if (word == "store") {
      store(words);
    } else if (word == "fetch") {
      fetch({words.begin() + 1, words.end()});
    } else {
      throw ScriptError("what is '" + word + "'");
    }
  }

  Array& find(const std::string& id) {
    blamed_ = to_integer(id);
    const auto found = arrays_.find(blamed_);
    if (found == arrays_.end()) throw MissingOperand();
    return found->second;
  }

  void input(const std::vector<std::string>& words) {
    blamed_ = to_integer(words.at(1));
    const auto dtype = ir::dtype_named(words.at(2));
    if (!dtype) throw ScriptError("what dtype is '" + words[2] + "'");
    const auto shape = to_integers(words.at(3)), block = to_integers(words.at(4));
    const std::vector<std::byte> bytes = from_hex(words.at(5));
    arrays_[blamed_] =
        session_.from_bytes(std::span<const std::byte>(bytes), *dtype, Shape(shape.begin(), shape.end()),
                            {.block = Shape(block.begin(), block.end())});
  }

  void call(const std::vector<std::string>& words) {
    const auto op = ops_.find(words.at(1));
    if (op == ops_.end()) throw ScriptError("no op is called '" + words[1] + "'");
    std::vector<Array> operands;
    for (const std::string& id : split(words.at(3) == "-" ? "" : words[3], ','))
      operands.push_back(id == "0" ? Array() : find(id));
    const std::vector<std::int64_t> results = to_integers(words.at(2));
    blamed_ = results.at(0);
    const std::vector<Array> made =
        op->second(Call(session_, std::move(operands), {words.begin() + 4, words.end()}));
    if (made.size() != results.size())
      throw ScriptError(words[1] + " gives " + std::to_string(made.size()) + " arrays");
    for (std::size_t i = 0; i < made.size(); ++i) arrays_[results[i]] = made[i];
  }

  void store(const std::vector<std::string>& words) {
    Array& array = find(words.at(1));
    const std::string path = folder_ + "/stored.npy";
    const auto block = to_integers(words.at(2));
    array.save_npy(path).wait();
    Array loaded = session_.load_npy(path, {.block = Shape(block.begin(), block.end())});
    loaded.persist().wait();  // the next one goes to the same file
    array = loaded;
  }

  void fetch(const std::vector<std::string>& ids) {
    std::vector<std::string> found;
    for (const std::string& id : ids) {
      if (arrays_.contains(to_integer(id)))
        found.push_back(id);
      else
        std::cout << "missing " << id << '\n';
    }
    if (found.size() == 1) {
      const Array& array = find(found[0]);
      tell(found[0], array.dtype(), array.shape(), [&]<class T>(T) { return array.template get<T>(); });
    } else if (!found.empty()) {
      std::vector<Array> arrays;
      for (const std::string& id : found) arrays.push_back(find(id));
      const Future all = session_.compute(std::span<const Array>(arrays));
      try {
        all.wait();
      } catch (const ArrayError&) {  // of which it is not known whose fault it was
        for (const std::string& id : found) obey({"fetch", id});
        blamed_ = 0;
        throw;
      }
      for (std::size_t i = 0; i < found.size(); ++i)
        tell(found[i], all.dtype(i), all.shape(i), [&]<class T>(T) { return all.template get<T>(i); });
    }
  }

  template <class Get> void tell(const std::string& id, DType dtype, const Shape& shape, const Get& get) {
    const std::string values = elements(dtype, get);
    std::cout << "result " << id << ' ' << ir::name_of(dtype) << ' ' << (shape.empty() ? "-" : "");
    for (std::size_t d = 0; d < shape.size(); ++d) std::cout << (d > 0 ? "," : "") << shape[d];
    std::cout << ' ' << values << '\n';
  }

  Session session_;
  std::string folder_;
  Ops ops_;
  std::map<std::int64_t, Array> arrays_;
  std::int64_t blamed_ = 0;  // the array that the line under way is about
};

}  // namespace

int main(int argc, char** argv) try {
  std::ios::sync_with_stdio(false);
  if (argc == 2 && argv[1] == std::string_view("--forms")) {
    for (const Form& form : kForms) std::cout << form.name << '\n';
    return 0;
  }
  const auto form = std::ranges::find_if(
      kForms, [&](const Form& known) { return argc == 3 && known.name == std::string_view(argv[1]); });
  if (form == kForms.end()) {
    std::cerr << "usage: fuzz_driver FORM FOLDER <script, or --forms\n";
    return 2;
  }
  embedded::ClusterOptions options = form->options;
  options.use_cuda = false;
  if (options.spill_bytes > 0) options.spill_directory = argv[2];
  auto cluster = embedded::Cluster::start(options);
  if (!cluster) throw std::runtime_error(cluster.error().message);
  Driver driver(make_session((*cluster)->connect("fuzz"),
                             {.seed = 5, .timeout = std::chrono::seconds(40), .inspect = io::inspect}),
                argv[2]);
  driver.run(std::cin);
  return 0;
} catch (const std::exception& e) {
  std::cerr << "fuzz_driver: " << e.what() << '\n';
  return 2;
}
