// Data-parallel training: a network of one hidden layer, gradients by hand, Adam. Rows of the batch are cut over a mesh of
// eight host devices, parameters are replicated; nobody writes an all-reduce. A plain loop trains the same network beside it.
//
//   mlp
#include <tilewise/embedded/cluster.h>
#include <tilewise/tilewise.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

using tilewise::Array;

constexpr std::int64_t kRows = 4096, kInputs = 2, kHidden = 16;
constexpr int kSteps = 200;
constexpr double kRate = 0.02, kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;

// ---- the plain network ----------------------------------------------------------------------------------------------

struct Plain {
  std::vector<double> w1, b1, w2, b2;

  std::vector<double*> parameters() {
    std::vector<double*> all;
    for (auto* part : {&w1, &b1, &w2, &b2}) {
      for (double& p : *part) all.push_back(&p);
    }
    return all;
  }
  // Loss of the batch; gradients in the order of parameters().
  double gradients(const std::vector<double>& x, const std::vector<double>& y, std::vector<double>& g) const {
    std::vector<double> g1(w1.size()), gb1(b1.size()), g2(w2.size()), a(kHidden);
    double gb2 = 0, loss = 0;
    for (std::int64_t r = 0; r < kRows; ++r) {
      double out = b2[0];
      for (std::int64_t h = 0; h < kHidden; ++h) {
        double z = b1[h];
        for (std::int64_t i = 0; i < kInputs; ++i) z += x[r * kInputs + i] * w1[i * kHidden + h];
        a[h] = std::tanh(z);
        out += a[h] * w2[h];
      }
      const double error = out - y[r];
      loss += error * error / kRows;
      const double go = 2 * error / kRows;
      gb2 += go;
      for (std::int64_t h = 0; h < kHidden; ++h) {
        g2[h] += go * a[h];
        const double gz = go * w2[h] * (1 - a[h] * a[h]);
        gb1[h] += gz;
        for (std::int64_t i = 0; i < kInputs; ++i) g1[i * kHidden + h] += gz * x[r * kInputs + i];
      }
    }
    g.clear();
    for (const auto* part : {&g1, &gb1, &g2}) g.insert(g.end(), part->begin(), part->end());
    g.push_back(gb2);
    return loss;
  }
};

// ---- the same on arrays -----------------------------------------------------------------------------------------------

struct Parameter {
  Array value, m, v;
};

void adam(Parameter& p, const Array& gradient, int step, const tilewise::Mesh& mesh) {
  p.m = p.m * kBeta1 + gradient * (1 - kBeta1);
  p.v = p.v * kBeta2 + square(gradient) * (1 - kBeta2);
  const Array m = p.m / (1 - std::pow(kBeta1, step)), v = p.v / (1 - std::pow(kBeta2, step));
  p.value = (p.value - kRate * m / (sqrt(v) + kEpsilon)).on(mesh, {});
}

int run() {
  using namespace tilewise;
  auto cluster = embedded::Cluster::start(
      {.workers = 2, .host_devices = 4, .use_cuda = false, .memory_bytes = 64 << 20});
  if (!cluster) throw ArrayError(cluster.error());
  auto session = make_session((*cluster)->connect("mlp"));
  if (!session.wait_for_devices(8, std::chrono::seconds(10))) throw ArrayError(Errc::kTimeout, "no devices");
  const Mesh mesh(session.devices(), {{"batch", 8}});

  std::vector<double> x(kRows * kInputs), y(kRows);
  for (std::int64_t r = 0; r < kRows; ++r) {
    const double a = -1 + 2 * std::fmod(0.618034 * static_cast<double>(r), 1.0);
    const double b = -1 + 2 * std::fmod(0.414214 * static_cast<double>(r), 1.0);
    x[r * kInputs] = a, x[r * kInputs + 1] = b;
    y[r] = std::sin(3 * a) + b * b;
  }
  Plain plain{std::vector<double>(kInputs * kHidden),
              std::vector<double>(kHidden),
              std::vector<double>(kHidden),
              {0}};
  for (std::size_t i = 0; i < plain.w1.size(); ++i) plain.w1[i] = std::sin(1.7 * static_cast<double>(i) + 1);
  for (std::size_t i = 0; i < plain.w2.size(); ++i)
    plain.w2[i] = 0.3 * std::cos(2.3 * static_cast<double>(i));

  // The batch: an eighth of the rows on each device. The parameters: whole, on every device.
  Array batch = session.from_memory(x, {kRows, kInputs}).on(mesh, {"batch"});
  Array target = session.from_memory(y, {kRows}).on(mesh, {"batch"});
  const auto parameter = [&](const std::vector<double>& values, const Shape& shape) {
    return Parameter{session.from_memory(values, shape).on(mesh, {}), session.zeros(shape),
                     session.zeros(shape)};
  };
  Parameter w1 = parameter(plain.w1, {kInputs, kHidden}), b1 = parameter(plain.b1, {kHidden}),
            w2 = parameter(plain.w2, {kHidden}), b2 = parameter(plain.b2, {1});
  session.persist({batch, target, w1.value, b1.value, w2.value, b2.value}).wait();
  std::printf("rows of the batch:\n%s", session.visualize(batch).c_str());

  double loss = 0, plain_loss = 0;
  std::vector<double> g, m(plain.parameters().size()), v(m.size());
  for (int step = 1; step <= kSteps; ++step) {
    const Array hidden = tanh(matmul(batch, w1.value) + b1.value);
    const Array error = matmul(hidden, w2.value) + b2.value - target;
    const Array go = error * (2.0 / kRows);
    const Array gz = go.expand_dims(1) * w2.value * (1.0 - square(hidden));
    const Array cost = mean(square(error));
    const Array g1 = matmul(batch.T(), gz), gb1 = sum(gz, 0), g2 = matmul(hidden.T(), go),
                gb2 = sum(go, 0, true);
    adam(w1, g1, step, mesh), adam(b1, gb1, step, mesh), adam(w2, g2, step, mesh), adam(b2, gb2, step, mesh);
    std::vector<Array> keep{cost};
    for (const Parameter* p : {&w1, &b1, &w2, &b2}) keep.insert(keep.end(), {p->value, p->m, p->v});
    session.persist(keep).wait();  // one message, one plan
    loss = cost.item<double>();

    plain_loss = plain.gradients(x, y, g);
    const std::vector<double*> p = plain.parameters();
    for (std::size_t i = 0; i < p.size(); ++i) {
      m[i] = kBeta1 * m[i] + (1 - kBeta1) * g[i];
      v[i] = kBeta2 * v[i] + (1 - kBeta2) * g[i] * g[i];
      *p[i] -= kRate * (m[i] / (1 - std::pow(kBeta1, step))) /
               (std::sqrt(v[i] / (1 - std::pow(kBeta2, step))) + kEpsilon);
    }
    if (step == 1 || step % 40 == 0) std::printf("step %2d: loss %.9f, plain %.9f\n", step, loss, plain_loss);
  }
  double worst = std::abs(loss - plain_loss);
  const std::vector<double> got = w1.value.get<double>();
  for (std::size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - plain.w1[i]));
  std::printf("largest difference from the plain loop: %g\n", worst);
  return worst < 1e-8 && loss < 0.05 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
