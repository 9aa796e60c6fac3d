// SPDX-License-Identifier: Apache-2.0
// A model of your own: a residual network that reads the frequency off a noisy record of a damped
// oscillation, trained fully sharded. docs/own-models.md explains it.
//
//     cmake -S . -B build -D CMAKE_PREFIX_PATH=<where Ostrakon is installed> && cmake --build build
//     mpiexec -n 4 build/own_model checkpoints 400
//     mpiexec -n 2 build/own_model checkpoints 800 --resume
// The digest is the same on 1, 2, 4 and 8 ranks, with as many threads, resumed or not.

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <ostrakon/gradient_check.hpp>
#include <ostrakon/training.hpp>
#include <random>

namespace {

using ostrakon::as_matrix, ostrakon::for_each, ostrakon::gemm, ostrakon::Transpose;

// Samples of a leaf, points of a record, both, and bytes of a record.
constexpr std::int64_t rows = 8, points = 64, all = rows * points, record_bytes = points * 4;

// 1. Samples. A batch is the records (rows, points), then their frequencies (rows).
struct Oscillations final : ostrakon::SampleSource {
  std::int64_t sample_bytes() const override { return record_bytes + sizeof(float); }
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    auto* const records = static_cast<float*>(batch);
    for (std::int64_t s = 0; s < count; ++s) {
      std::mt19937_64 random(first + static_cast<std::uint64_t>(s));  // a function of the index
      const auto uniform = [&] { return static_cast<float>(random() >> 40) * 0x1p-24f; };
      const float frequency = 0.5f + uniform(), damping = uniform(), amplitude = 0.5f + uniform();
      records[count * points + s] = frequency;
      for (std::int64_t i = 0; i < points; ++i) {
        const float t = 0.2f * static_cast<float>(i);
        records[s * points + i] = amplitude * std::exp(-damping * t) * std::cos(frequency * t) +
                                  0.1f * (uniform() - 0.5f);
      }
    }
  }
};

// 2. Units, as templates: checked in double, trained in float. This one: y = the records.
template <class T>
struct Records final : ostrakon::Unit<T> {
  ostrakon::UnitDescription describe() const override {
    ostrakon::UnitDescription unit{"records"};
    unit.output = all;
    unit.reads_batch = true;
    return unit;
  }
  void forward(const ostrakon::ForwardCall<T>& call) const override {
    const auto records = call.batch.template array<float>(0, all);
    const auto y = call.output;
    for_each(
        call.exec, all, KOKKOS_LAMBDA(std::int64_t i) { y(i) = records(i); });
  }
  void backward(const ostrakon::BackwardCall<T>&) const override {}
};

// y = x + tanh(x W + b). Saves the tanh.
template <class T>
struct Residual final : ostrakon::Unit<T> {
  const int number;
  const bool is_wrong;
  Residual(int number_, bool is_wrong_) : number(number_), is_wrong(is_wrong_) {}
  ostrakon::UnitDescription describe() const override {
    ostrakon::UnitDescription unit{"residual." + std::to_string(number)};
    unit.parameters = {ostrakon::Parameter::normal("weight", {points, points}, 0.1),
                       ostrakon::Parameter::zeros("bias", {points})};
    unit.input = unit.output = all;
    unit.saved_bytes = unit.backward[0].workspace_bytes = all * sizeof(T);
    unit.forward[0].flops = unit.forward[0].recompute_flops = 2.0 * all * points;
    unit.backward[0].flops = 2 * unit.forward[0].flops;
    return unit;
  }
  void forward(const ostrakon::ForwardCall<T>& call) const override {
    const auto x = call.input;
    const auto y = call.output;  // empty in a call that recomputes
    const auto t = call.saved.template array<T>(0, all);
    const auto sums = as_matrix(t, rows, points);
    gemm<T>(call.exec, Transpose::no, Transpose::no, 1, as_matrix(x, rows, points),
            call.parameters.matrix(0), 0, sums);
    ostrakon::add_bias<T>(call.exec, sums, call.parameters(1));
    for_each(
        call.exec, all, KOKKOS_LAMBDA(std::int64_t i) {
          t(i) = std::tanh(t(i));
          if (y.size() > 0) y(i) = x(i) + t(i);
        });
  }
  void backward(const ostrakon::BackwardCall<T>& call) const override {
    const auto g = call.gradient, d = call.workspace.template array<T>(0, all);  // g becomes dL/dx
    const auto t = call.saved.template array<T>(0, all);
    const T sign = is_wrong ? 1 : -1;
    for_each(
        call.exec, all, KOKKOS_LAMBDA(std::int64_t i) { d(i) = g(i) * (1 + sign * t(i) * t(i)); });
    const auto dm = as_matrix(d, rows, points);
    gemm<T>(call.exec, Transpose::yes, Transpose::no, 1, as_matrix(call.input, rows, points), dm, 0,
            call.parameter_gradients.matrix(0));
    ostrakon::column_sums<T>(call.exec, dm, call.parameter_gradients(1));
    gemm<T>(call.exec, Transpose::no, Transpose::yes, 1, dm, call.parameters.matrix(0), 1,
            as_matrix(g, rows, points));
  }
};

// The loss of a sample: the squared distance of its first element from the frequency.
template <class T>
struct Misfit final : ostrakon::Unit<T> {
  ostrakon::UnitDescription describe() const override {
    ostrakon::UnitDescription unit{"misfit"};
    unit.input = all;
    unit.output = rows;
    unit.is_loss = unit.reads_batch = true;
    return unit;
  }
  void forward(const ostrakon::ForwardCall<T>& call) const override {
    const auto frequency = call.batch.template array<float>(rows * record_bytes, rows);
    const auto x = call.input;
    const auto losses = call.losses;
    for_each(
        call.exec, rows, KOKKOS_LAMBDA(std::int64_t row) {
          const T difference = x(row * points) - frequency(row);
          losses(row) = difference * difference;
        });
  }
  void backward(const ostrakon::BackwardCall<T>& call) const override {
    const auto frequency = call.batch.template array<float>(rows * record_bytes, rows);
    const auto x = call.input;
    const auto g = call.gradient;
    const T factor = 2 * call.loss_scale;
    for_each(
        call.exec, all, KOKKOS_LAMBDA(std::int64_t i) {
          g(i) = i % points == 0 ? factor * (x(i) - frequency(i / points)) : T(0);
        });
  }
};

template <class T>
ostrakon::Chain<T> make_chain(bool is_wrong) {
  std::vector<std::unique_ptr<ostrakon::Unit<T>>> units;
  units.push_back(std::make_unique<Records<T>>());
  for (int i = 0; i < 4; ++i) units.push_back(std::make_unique<Residual<T>>(i, is_wrong && i == 2));
  units.push_back(std::make_unique<Misfit<T>>());
  return {std::move(units), {rows, Oscillations().sample_bytes()}};
}

const char* const usage = "usage: own_model FOLDER STEPS [--resume | --wrong-gradient]\n";

int run(const ostrakon::Arguments& arguments) {
  const bool resumes = arguments.size() == 3 && arguments[2] == "--resume";
  const bool is_wrong = arguments.size() == 3 && arguments[2] == "--wrong-gradient";
  if (arguments.size() != 2 && !resumes && !is_wrong) throw ostrakon::AgreedError(usage);
  ostrakon::Mesh mesh(MPI_COMM_WORLD);
  const bool is_root = mesh.world().rank() == 0;
  // 3. Is backward that of forward? What is thrown within agree() is one message of all ranks.
  Oscillations samples;
  mesh.world().agree([&] {
    const auto report = ostrakon::check_gradients(make_chain<double>(is_wrong), samples);
    if (!report.passed()) throw ostrakon::Error(report.text());
    if (is_root) std::cout << report.text() << std::endl;
  });
  // 4. How it is trained: samples of a step, optimizer, what is sharded, recomputed and copied.
  ostrakon::TrainerSettings settings;
  settings.steps = std::strtoll(arguments[1].c_str(), nullptr, 10);  // Trainer refuses 0
  settings.global_batch_size = 8 * rows;
  settings.micro_batch_size = rows;
  settings.optimizer.learning_rate = 1e-3;
  settings.schedule.tail = ostrakon::Tail::constant;
  settings.policy.sharding = ostrakon::Sharding::full;
  settings.policy.activation_checkpointing.every = 1;
  settings.policy.checkpoint_staging = true;  // checkpoints are written while steps are taken
  // 5. Training.
  ostrakon::set_matrix_threads(mesh.world());
  ostrakon::Trainer trainer(ostrakon::make_model(make_chain<float>(false)), settings, mesh);
  trainer.require_memory();
  trainer.allocate();
  ostrakon::Checkpoints checkpoints({arguments[0]}, mesh, trainer, samples);
  std::int64_t step = resumes ? checkpoints.resume() : 0;  // or sets older ones aside
  if (step == 0) trainer.initialize();
  if (step > 0 && is_root) std::cout << "resumes from step " << step << std::endl;
  checkpoints.finish_after([&] {  // also where a step fails
    while (step < settings.steps) {
      const ostrakon::StepResult result = trainer.step(samples, ++step);
      checkpoints.advance();
      if (step % 20 != 0) continue;
      checkpoints.save();
      if (is_root) std::cout << "step " << step << ", loss " << result.loss << std::endl;
    }
  });
  const auto digest = trainer.state_digest();
  if (is_root) std::cout << "step " << step << ", digest " << std::hex << digest << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return ostrakon::run_program("own_model", usage, argc, argv, run);
}
