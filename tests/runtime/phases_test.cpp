// SPDX-License-Identifier: Apache-2.0

// A model with a unit that ranks compute together, planned and run: the residual block
//   y = x + V relu(W x)
// is divided along its hidden features into two slices, which one rank has both of, or two ranks
// one each. Its forward has three phases: rows of all ranks are gathered; each rank computes with
// its slice for all rows, which gives sums that are not complete; these are added up and divided
// over the ranks; each adds its own rows to x. Backward goes the same way. Whatever ranks there
// are, and in whatever order streams run, the weights after some steps are bit for bit those of a
// plain loop over leaves without plans.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/plan/traffic.hpp>
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <vector>

namespace {

using namespace ostrakon;
using plan::Kind;
using plan::Role;

constexpr int rows = 4, width = 8, hidden = 12, slices = 2, leaves = 4, steps = 12;
constexpr int of_slice = hidden / slices;  // hidden features
constexpr float learning_rate = 0.05f;
constexpr double loss_unit = 0x1p-30;  // losses are added up as integers
using Row = std::array<float, width>;

float noise(std::int64_t seed) {
  auto x = static_cast<std::uint64_t>(seed + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  return static_cast<float>(x >> 40) * 0x1p-24f - 0.5f;
}

// ---- the mathematics, of a row and a slice. Not inlined: compilers round sums of products in one
// way here and another there, as it suits the code around them.

/// W is hidden x width, V is width x hidden, one behind the other.
struct Weights {
  const float* w;
  const float* v;
  explicit Weights(const float* flat) : w(flat), v(flat + hidden * width) {}
};
constexpr int block_elements = 2 * hidden * width;

/// Features [slice's first, ...): relu(W x) to `features`, V times these to `sum`.
[[gnu::noinline]] void slice_forward(Weights weights, int slice, const float* x, float* features,
                                     float* sum) {
  for (int i = 0; i < width; ++i) sum[i] = 0.0f;
  for (int k = 0; k < of_slice; ++k) {
    const int f = slice * of_slice + k;
    float value = 0.0f;
    for (int i = 0; i < width; ++i) value += weights.w[f * width + i] * x[i];
    features[k] = value > 0.0f ? value : 0.0f;
    for (int i = 0; i < width; ++i) sum[i] += weights.v[i * hidden + f] * features[k];
  }
}

/// Adds to the gradients of the slice's weights; what goes back to x to `sum`.
[[gnu::noinline]] void slice_backward(Weights weights, int slice, const float* x,
                                      const float* features, const float* gradient,
                                      float* gradients, float* sum) {
  float *dw = gradients, *dv = gradients + hidden * width;
  for (int i = 0; i < width; ++i) sum[i] = 0.0f;
  for (int k = 0; k < of_slice; ++k) {
    const int f = slice * of_slice + k;
    float back = 0.0f;
    for (int i = 0; i < width; ++i) {
      back += weights.v[i * hidden + f] * gradient[i];
      dv[i * hidden + f] += gradient[i] * features[k];
    }
    if (!(features[k] > 0.0f)) continue;
    for (int i = 0; i < width; ++i) {
      dw[f * width + i] += back * x[i];
      sum[i] += back * weights.w[f * width + i];
    }
  }
}

/// Half the squared distance of u . y from the target; the gradient by y.
[[gnu::noinline]] float head(const float* u, const float* y, float target, float* du,
                             float* gradient) {
  float distance = -target;
  for (int i = 0; i < width; ++i) distance += u[i] * y[i];
  for (int i = 0; i < width; ++i) {
    du[i] += distance * y[i];
    gradient[i] = distance * u[i];
  }
  return 0.5f * distance * distance;
}

/// Adds to the gradients of the weights that each feature of a token is multiplied with.
[[gnu::noinline]] void scale_backward(const float* token, const float* gradient, float* gradients) {
  for (int i = 0; i < width; ++i) gradients[i] += gradient[i] * token[i];
}

[[gnu::noinline]] void update(float* weights, const float* gradients, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) weights[i] -= learning_rate * gradients[i];
}

// ---- data and weights at the begin

constexpr std::array<int, 3> unit_elements = {width, block_elements, width};
constexpr int batch_elements = rows * width + rows;

void read_leaf(std::int64_t leaf, float* batch) {
  for (int i = 0; i < batch_elements; ++i) batch[i] = noise(1000 * leaf + i);
}
float first_weight(int unit, std::int64_t element) {
  return element < unit_elements[static_cast<std::size_t>(unit)] ? noise(77 * unit + 5 * element)
                                                                 : 0.0f;
}

// ---- the plain loop

using Model = std::array<std::vector<float>, 3>;

struct Plain {
  Model weights;
  std::vector<double> losses;  // of each step
};

void add(Model& sum, const Model& other) {
  for (std::size_t u = 0; u < 3; ++u)
    for (std::size_t i = 0; i < sum[u].size(); ++i) sum[u][i] += other[u][i];
}

Model zeros() {
  Model model;
  for (std::size_t u = 0; u < 3; ++u)
    model[u].assign(static_cast<std::size_t>(unit_elements[u]), 0.0f);
  return model;
}

/// The gradients of one leaf; adds its losses.
Model leaf_gradients(const Model& weights, std::int64_t leaf, std::int64_t& loss) {
  Model gradients = zeros();
  const Weights block(weights[1].data());
  std::vector<float> batch(batch_elements);
  read_leaf(leaf, batch.data());
  std::int64_t sum_of_losses = 0;
  for (int r = 0; r < rows; ++r) {
    const float* token = batch.data() + r * width;
    Row x, y, gradient;
    std::array<Row, slices> part;
    std::array<std::array<float, of_slice>, slices> features;
    for (std::size_t i = 0; i < width; ++i) x[i] = token[i] * weights[0][i];
    for (std::size_t s = 0; s < slices; ++s)
      slice_forward(block, static_cast<int>(s), x.data(), features[s].data(), part[s].data());
    for (std::size_t i = 0; i < width; ++i) y[i] = x[i] + (part[0][i] + part[1][i]);
    const float of_row =
        head(weights[2].data(), y.data(), batch[static_cast<std::size_t>(rows * width + r)],
             gradients[2].data(), gradient.data());
    sum_of_losses += std::llround(static_cast<double>(of_row) / loss_unit);
    for (std::size_t s = 0; s < slices; ++s)
      slice_backward(block, static_cast<int>(s), x.data(), features[s].data(), gradient.data(),
                     gradients[1].data(), part[s].data());
    for (std::size_t i = 0; i < width; ++i) gradient[i] += part[0][i] + part[1][i];
    scale_backward(token, gradient.data(), gradients[0].data());
  }
  loss += sum_of_losses;
  return gradients;
}

Plain plain_loop() {
  Plain plain;
  plain.weights = zeros();
  for (std::size_t u = 0; u < 3; ++u)
    for (std::size_t i = 0; i < plain.weights[u].size(); ++i)
      plain.weights[u][i] = first_weight(static_cast<int>(u), static_cast<std::int64_t>(i));
  for (int step = 0; step < steps; ++step) {
    std::int64_t loss = 0;
    std::array<Model, leaves> of_leaf;
    for (std::size_t leaf = 0; leaf < leaves; ++leaf)
      of_leaf[leaf] = leaf_gradients(plain.weights, static_cast<std::int64_t>(leaf), loss);
    // The tree of four leaves.
    add(of_leaf[0], of_leaf[1]);
    add(of_leaf[2], of_leaf[3]);
    add(of_leaf[0], of_leaf[2]);
    for (std::size_t u = 0; u < 3; ++u)
      update(plain.weights[u].data(), of_leaf[0][u].data(), unit_elements[u]);
    plain.losses.push_back(static_cast<double>(loss) * loss_unit);
  }
  return plain;
}

// ---- the plan

plan::ModelDescription describe(int ranks) {
  constexpr std::int64_t activations = rows * width;  // elements
  plan::ModelDescription model;
  model.batch_bytes = 4 * batch_elements;
  model.gradient_bytes = 4 * activations;
  model.sums_bytes = 8;
  const char* const names[] = {"scale", "block", "head"};
  for (std::size_t u = 0; u < 3; ++u) {
    plan::UnitDescription unit;
    unit.name = names[u];
    unit.parameter_elements = unit_elements[u];
    unit.output_bytes = u == 2 ? 4 * rows : 4 * activations;
    unit.backward_reads_parameters = u > 0;
    model.units.push_back(unit);
  }
  plan::UnitDescription& block = model.units[1];
  block.reads_batch = false;
  block.recomputes = true;
  // The gathered rows, and this rank's features of each.
  block.saved_bytes = 4 * (ranks * activations + rows * hidden);
  const plan::Span span{plan::Axis::shard, ranks};
  const plan::Exchange gather{plan::ExchangeKind::gather, span, ranks * activations, 4};
  const plan::Exchange sum{plan::ExchangeKind::reduce_scatter, span, ranks * activations, 4};
  for (plan::Phases* phases : {&block.forward, &block.backward}) {
    phases->assign(3, {});
    (*phases)[0].then = gather;
    (*phases)[1].then = sum;
  }
  // Partial sums of a slice; in backward, gradients of the rows of one rank.
  block.forward[1].workspace_bytes = 4 * width;
  block.backward[1].workspace_bytes = 4 * (width + block_elements);
  return model;
}

class Machine {
 public:
  Machine(int every, runtime::Streams streams)
      : world_(comm::Communicator::duplicate(MPI_COMM_WORLD)),
        gather_(comm::Communicator::duplicate(MPI_COMM_WORLD)),
        reduce_(comm::Communicator::duplicate(MPI_COMM_WORLD)),
        exchange_(comm::Communicator::duplicate(MPI_COMM_WORLD)),
        program_(make_program(every)),
        device_(program_.memory.arena_bytes),
        host_(program_.host_memory.arena_bytes, plan::Space::host),
        executor_({device_.data(), host_.data()}, streams) {
    set_handlers();
    const plan::StepPlan& plan = program_.plan;
    for (int u = 0; u < 3; ++u)
      for (std::int64_t i = 0; i < shard_elements(u); ++i)
        masters(u)[i] = first_weight(u, first_element(u) + i);
    EXPECT_EQ(plan.units.size(), 3u);
  }

  void perturb(runtime::Perturbation perturbation) { executor_.perturb(perturbation); }

  double step() {
    executor_.run(program_);
    return static_cast<double>(*sums()) * loss_unit;
  }

  void expect_weights(const Model& weights) {
    for (int u = 0; u < 3; ++u)
      for (std::int64_t i = 0; i < shard_elements(u); ++i) {
        const std::int64_t element = first_element(u) + i;
        if (element >= unit_elements[static_cast<std::size_t>(u)]) continue;
        ASSERT_EQ(masters(u)[i],
                  weights[static_cast<std::size_t>(u)][static_cast<std::size_t>(element)])
            << "unit " << u << ", element " << element;
      }
  }

  std::int64_t planned_bytes() const {
    std::int64_t bytes = 0;
    for (const plan::Action& action : program_.plan.actions)
      if (action.kind == Kind::exchange) bytes += program_.plan.bytes_sent(action);
    return bytes;
  }
  std::int64_t exchanged_bytes() const { return exchange_.bytes_sent(); }
  int ranks() const { return world_.size(); }
  int actions_of(Kind kind) const {
    int count = 0;
    for (const plan::Action& action : program_.plan.actions) count += action.kind == kind ? 1 : 0;
    return count;
  }

 private:
  using Buffers = runtime::ActionBuffers;

  runtime::Program make_program(int every) const {
    plan::Policy policy;
    policy.leaves = leaves;
    policy.moments.count = 0;
    policy.activation_checkpointing.every = every;
    return runtime::make_program(plan::build_step_plan(describe(world_.size()), world_.size(),
                                                       policy, plan::Purpose::train));
  }

  const plan::PlannedUnit& unit(int u) const {
    return program_.plan.units[static_cast<std::size_t>(u)];
  }
  float* device_at(int buffer) {
    return reinterpret_cast<float*>(device_.data() +
                                    program_.memory.offsets[static_cast<std::size_t>(buffer)]);
  }
  float* masters(int u) { return device_at(unit(u).masters); }
  std::int64_t* sums() { return reinterpret_cast<std::int64_t*>(device_at(program_.plan.sums)); }
  std::int64_t shard_elements(int u) const {
    return program_.plan.elements(unit(u).flats, program_.plan.layouts.masters.divided);
  }
  std::int64_t first_element(int u) const {
    return program_.plan.first_element(unit(u).flats.first, program_.plan.layouts.masters.divided,
                                       world_.rank());
  }

  // ---- handlers

  void set_handlers() {
    executor_.on(Kind::begin, [](const Buffers& at) { *at.get<std::int64_t>(Role::sums) = 0; });
    executor_.on(Kind::load, [this](const Buffers& at) {
      const std::int64_t leaf = program_.plan.leaf(world_.rank(), at.action.micro_batch);
      read_leaf(leaf, at.get<float>(Role::host_batch));
      std::copy_n(at.get<float>(Role::host_batch), batch_elements, at.get<float>(Role::batch));
    });
    executor_.on(Kind::gather, [this](const Buffers& at) {
      gather_.all_gather(at.get<float>(Role::shard), at.action.elements / at.action.span.ranks,
                         at.get<float>(Role::parameters));
    });
    executor_.on(Kind::exchange, [this](const Buffers& at) { exchange(at); });
    executor_.on(Kind::forward, [this](const Buffers& at) { forward(at); });
    executor_.on(Kind::recompute, [this](const Buffers& at) { block_forward(at); });
    executor_.on(Kind::backward, [this](const Buffers& at) { backward(at); });
    executor_.on(Kind::loss, [](const Buffers& at) {
      for (int r = 0; r < rows; ++r)
        *at.get<std::int64_t>(Role::sums) +=
            std::llround(static_cast<double>(at.get<float>(Role::output)[r]) / loss_unit);
    });
    executor_.on(Kind::reduce_scatter, [this](const Buffers& at) {
      reduce_.reduce_scatter(at.get<float>(Role::parameter_gradients),
                             at.action.elements / at.action.span.ranks,
                             at.get<float>(Role::staging), at.get<float>(Role::gradient_shard));
    });
    executor_.on(Kind::accumulate, [](const Buffers& at) {
      for (std::int64_t i = 0; i < at.action.elements; ++i)
        at.get<float>(Role::parameter_gradients)[i] += at.get<float>(Role::source)[i];
    });
    executor_.on(Kind::norm, [](const Buffers&) {});
    executor_.on(Kind::clip,
                 [this](const Buffers& at) { world_.sum(at.get<std::int64_t>(Role::sums), 1); });
    executor_.on(Kind::optimize, [](const Buffers& at) {
      update(at.get<float>(Role::shard), at.get<float>(Role::gradient_shard), at.action.elements);
    });
  }

  void exchange(const Buffers& at) {
    const std::int64_t part = at.action.elements / at.action.span.ranks;
    const auto* handed = at.get<float>(Role::handed);
    auto* exchanged = at.get<float>(Role::exchanged);
    if (at.action.exchange == plan::ExchangeKind::gather)
      exchange_.all_gather(handed, part, exchanged);
    else
      exchange_.reduce_scatter(handed, part, at.get<float>(Role::staging), exchanged);
  }

  void forward(const Buffers& at) {
    if (at.action.unit == 1) return block_forward(at);
    for (int e = 0; e < rows * width; ++e)
      at.get<float>(Role::output)[e] =
          at.get<float>(Role::batch)[e] * at.get<float>(Role::parameters)[e % width];
  }

  void backward(const Buffers& at) {
    if (at.action.unit == 1) return block_backward(at);
    auto* gradients = at.get<float>(Role::parameter_gradients);
    clear_gradients(at, gradients);
    for (int r = 0; r < rows; ++r) {
      float* gradient = at.get<float>(Role::gradient) + r * width;
      const float* batch = at.get<float>(Role::batch);
      if (at.action.unit == 2)
        at.get<float>(Role::output)[r] =
            head(at.get<float>(Role::parameters), at.get<float>(Role::input) + r * width,
                 batch[rows * width + r], gradients, gradient);
      else
        scale_backward(batch + r * width, gradient, gradients);
    }
  }

  void clear_gradients(const Buffers& at, float* gradients) const {
    const std::int64_t elements = program_.plan.padded(unit(at.action.unit).flats);
    std::fill_n(gradients, elements, 0.0f);
  }

  int all_rows() const { return rows * world_.size(); }
  int slices_of_rank() const { return slices / world_.size(); }
  int first_slice() const { return world_.rank() * slices_of_rank(); }
  /// In what is saved, behind the rows: those of a row and the n-th slice of this rank.
  float* features(const Buffers& at, int row, int n) const {
    return at.get<float>(Role::saved) + all_rows() * width +
           (row * slices_of_rank() + n) * of_slice;
  }

  void block_forward(const Buffers& at) {
    if (at.action.phase == 0) {
      std::copy_n(at.get<float>(Role::input), rows * width, at.get<float>(Role::handed));
    } else if (at.action.phase == 1) {
      const Weights weights(at.get<float>(Role::parameters));
      auto* x = at.get<float>(Role::saved);
      std::copy_n(at.get<float>(Role::exchanged), all_rows() * width, x);
      auto* part = at.get<float>(Role::workspace);
      for (int r = 0; r < all_rows(); ++r)
        for (int n = 0; n < slices_of_rank(); ++n) {
          slice_forward(weights, first_slice() + n, x + r * width, features(at, r, n), part);
          take(part, n, at.get<float>(Role::handed) + r * width);
        }
    } else if (auto* output = at.get<float>(Role::output); output != nullptr) {
      for (int e = 0; e < rows * width; ++e)
        output[e] = at.get<float>(Role::input)[e] + at.get<float>(Role::exchanged)[e];
    }
  }

  void block_backward(const Buffers& at) {
    if (at.action.phase == 0) {
      clear_gradients(at, at.get<float>(Role::parameter_gradients));
      std::copy_n(at.get<float>(Role::gradient), rows * width, at.get<float>(Role::handed));
    } else if (at.action.phase == 1) {
      const Weights weights(at.get<float>(Role::parameters));
      auto* part = at.get<float>(Role::workspace);
      float* of_leaf = part + width;
      for (int leaf = 0; leaf < world_.size(); ++leaf) {
        std::fill_n(of_leaf, block_elements, 0.0f);
        for (int r = leaf * rows; r < (leaf + 1) * rows; ++r)
          for (int n = 0; n < slices_of_rank(); ++n) {
            slice_backward(weights, first_slice() + n, at.get<float>(Role::saved) + r * width,
                           features(at, r, n), at.get<float>(Role::exchanged) + r * width, of_leaf,
                           part);
            take(part, n, at.get<float>(Role::handed) + r * width);
          }
        for (int e = 0; e < block_elements; ++e)
          at.get<float>(Role::parameter_gradients)[e] += of_leaf[e];
      }
    } else {
      for (int e = 0; e < rows * width; ++e)
        at.get<float>(Role::gradient)[e] += at.get<float>(Role::exchanged)[e];
    }
  }

  /// The sum over the slices of this rank, the n-th now.
  static void take(const float* part, int n, float* sum) {
    for (int i = 0; i < width; ++i) sum[i] = n == 0 ? part[i] : sum[i] + part[i];
  }

  comm::Communicator world_, gather_, reduce_, exchange_;
  const runtime::Program program_;
  runtime::Arena device_, host_;
  runtime::Executor executor_;
};

void expect_the_plain_loop(int every, runtime::Streams streams,
                           runtime::Perturbation perturbation) {
  const Plain plain = plain_loop();
  Machine machine(every, streams);
  machine.perturb(perturbation);
  for (int step = 0; step < steps; ++step)
    EXPECT_EQ(machine.step(), plain.losses[static_cast<std::size_t>(step)]) << step;
  machine.expect_weights(plain.weights);
  EXPECT_EQ(machine.exchanged_bytes(), steps * machine.planned_bytes());
}

class RunPhases : public testing::Test {
 protected:
  void SetUp() override {
    if (on_device) GTEST_SKIP() << "its handlers compute on the host";
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (slices % ranks != 0) GTEST_SKIP() << "there are two slices";
  }
};

TEST_F(RunPhases, TheLossFalls) {
  const Plain plain = plain_loop();
  EXPECT_GT(plain.losses.back(), 0.0);
  EXPECT_LT(plain.losses.back(), 0.9 * plain.losses.front());
}

TEST_F(RunPhases, GivesTheBitsOfAPlainLoop) {
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    expect_the_plain_loop(0, runtime::Streams::in_plan_order, {seed, 0.0});
}

TEST_F(RunPhases, RecomputesWithTheirExchanges) {
  const Machine machine(1, runtime::Streams::in_plan_order);
  const int micro_batches = leaves / machine.ranks();
  EXPECT_EQ(machine.actions_of(Kind::recompute), 3 * micro_batches);
  EXPECT_EQ(machine.actions_of(Kind::exchange), machine.ranks() > 1 ? 6 * micro_batches : 0);
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    expect_the_plain_loop(1, runtime::Streams::in_plan_order, {seed, 0.0});
}

TEST_F(RunPhases, RunsOnThreads) {
  if (!comm::Communicator::threads_may_call()) GTEST_SKIP() << "MPI lets one thread call it";
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    expect_the_plain_loop(static_cast<int>(seed) % 2, runtime::Streams::threads, {seed, 1e-4});
}

}  // namespace
