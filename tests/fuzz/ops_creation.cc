// New arrays, random ones, and where arrays lie.
#include "call.h"

namespace tilewise::fuzz {

namespace {

CreateOptions create_options(const Call& call) { return {.dtype = call.dtype(), .block = call.block()}; }

LikeOptions like_options(const Call& call) { return {.dtype = call.dtype_or_none(), .block = call.block()}; }

// The same stream cut in two ways: block= and other_block=.
template <class F> Op cut_twice(F function) {
  return [function](const Call& call) -> std::vector<Array> {
    RandomOptions options{.seed = static_cast<std::uint64_t>(call.integer("seed")), .block = call.block()};
    if (const auto dtype = call.dtype_or_none()) options.dtype = *dtype;
    const Array one = function(call, options);
    options.block = call.shape("other_block");
    return {one, function(call, options)};
  };
}

// Devices are numbered round: how many there are depends on the form of cluster.
Array on_devices(const Call& call) {
  const std::vector<Device> all = call.session().devices();
  std::vector<DeviceId> chosen;
  for (const std::int64_t k : call.integers("devices")) {
    const DeviceId id = all[static_cast<std::size_t>(k) % all.size()].id;
    if (std::find(chosen.begin(), chosen.end(), id) == chosen.end()) chosen.push_back(id);
  }
  return call[0].on(chosen);
}

Array on_mesh(const Call& call) {
  const std::vector<Device> all = call.session().devices();
  const int count = static_cast<int>(all.size()), rank = call[0].rank();
  const bool square = count % 2 == 0;
  const Mesh mesh = square ? Mesh(all, {{"x", 2}, {"y", count / 2}}) : Mesh(all, {{"x", count}});
  const std::string& spec = call.text("spec");
  if (spec == "rows" && rank >= 1) return call[0].on(mesh, {"x"});
  if (spec == "columns" && rank >= 2) return call[0].on(mesh, {{}, "x"});
  if (spec == "tiles" && rank >= 2 && square) return call[0].on(mesh, {"y", "x"});
  if (spec == "joined" && rank >= 1 && square) return call[0].on(mesh, {{"x", "y"}});
  return call[0].on(mesh, {});
}

}  // namespace

Ops creation_ops() {
  return {
      {"zeros", [](const Call& call) { return call.session().zeros(call.shape(), create_options(call)); }},
      {"ones", [](const Call& call) { return call.session().ones(call.shape(), create_options(call)); }},
      {"full",
       [](const Call& call) {
         return call.session().full(call.shape(), call.scalar(),
                                    {.dtype = call.dtype_or_none(), .block = call.block()});
       }},
      {"zeros_like", [](const Call& call) { return zeros_like(call[0], like_options(call)); }},
      {"ones_like", [](const Call& call) { return ones_like(call[0], like_options(call)); }},
      {"full_like", [](const Call& call) { return full_like(call[0], call.scalar(), like_options(call)); }},
      {"arange",
       [](const Call& call) {
         return call.session().arange(call.scalar("start"), call.scalar("stop"), call.scalar("step"),
                                      {.dtype = call.dtype_or_none(), .block = call.block()});
       }},
      {"linspace",
       [](const Call& call) {
         return call.session().linspace(
             call.scalar("start"), call.scalar("stop"), call.integer("count"),
             {.dtype = call.dtype_or_none(), .block = call.block(), .endpoint = call.flag("endpoint")});
       }},
      {"eye",
       [](const Call& call) {
         return call.session().eye(call.integer("rows"), call.integer_or_none("columns"), call.integer("k"),
                                   create_options(call));
       }},
      {"fft.fftfreq",
       [](const Call& call) {
         return fft::fftfreq(call.session(), call.integer("n"), call.number("d"), create_options(call));
       }},
      {"fft.rfftfreq",
       [](const Call& call) {
         return fft::rfftfreq(call.session(), call.integer("n"), call.number("d"), create_options(call));
       }},
      {"random.uniform", cut_twice([](const Call& call, const RandomOptions& options) {
         return call.session().random.uniform(call.shape(), options, call.number("low"), call.number("high"));
       })},
      {"random.normal", cut_twice([](const Call& call, const RandomOptions& options) {
         return call.session().random.normal(call.shape(), options);
       })},
      {"random.integers", cut_twice([](const Call& call, const RandomOptions& options) {
         return call.session().random.integers(call.integer("low"), call.integer("high"), call.shape(),
                                               options);
       })},
      {"random.permutation", cut_twice([](const Call& call, const RandomOptions& options) {
         return call.session().random.permutation(call.integer("n"), options);
       })},
      {"on", on_devices},
      {"on_mesh", on_mesh},
      {"named", [](const Call& call) { return call[0].named("some"); }},
  };
}

}  // namespace tilewise::fuzz
