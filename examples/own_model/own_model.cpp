// SPDX-License-Identifier: Apache-2.0
// A model of your own: a residual network that reads the frequency off a noisy record of a damped
// oscillation, trained fully sharded. docs/own-models.md explains it.
//
//     cmake -S . -B build -D CMAKE_PREFIX_PATH=<where Ostrakon is installed> && cmake --build build
//     mpiexec -n 4 build/own_model checkpoints 400
//     mpiexec -n 2 build/own_model checkpoints 800 --resume
//     mpiexec -n 2 build/own_model others 400 --tensor      # two ranks compute each leaf together
// The digest is the same on 1, 2, 4 and 8 ranks, with as many threads, resumed or not, and with
// tensor ranks.

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <ostrakon/gradient_check.hpp>
#include <ostrakon/training.hpp>
#include <random>
#include <string>

namespace {

using ostrakon::Builder, ostrakon::Operation, ostrakon::Value, ostrakon::for_each;

// Samples of a leaf, points of a record, and bytes of one.
constexpr std::int64_t rows = 8, points = 64, record_bytes = points * 4;

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

// 2. Operations of its own, by two kernels each. y = tanh(x), element by element:
template <class T>
void bend_forward(const ostrakon::OperationForward<T>& call) {
  const auto x = call.inputs[0];
  const auto y = call.output;
  for_each(
      call.exec, y.rows(), y.columns(),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) { y(i, j) = std::tanh(x(i, j)); });
}
template <class T, int sign>
void bend_backward(const ostrakon::OperationBackward<T>& call) {
  const auto y = call.output, dy = call.gradient;
  const auto dx = call.input_gradients[0];
  for_each(
      call.exec, y.rows(), y.columns(), KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        dx(i, j) = dy(i, j) * (1 + sign * y(i, j) * y(i, j));
      });
}
template <class T>
Operation<T> bend(Value x, bool is_wrong) {
  Operation<T> own{
      "tanh", {x}, bend_forward<T>, is_wrong ? bend_backward<T, 1> : bend_backward<T, -1>};
  own.takes = ostrakon::Takes::elements;
  own.backward_reads_inputs = false;
  own.backward_reads_output = true;
  return own;
}

// The loss of a sample: the squared distance of its row's first element from the frequency.
template <class T>
void misfit_forward(const ostrakon::OperationForward<T>& call) {
  const auto x = call.inputs[0];
  const auto losses = call.losses;
  const auto frequency = call.batch.template array<float>(rows * record_bytes, rows);
  const std::int64_t first = call.first_row;  // a tensor rank has some of the rows
  for_each(
      call.exec, x.rows(), KOKKOS_LAMBDA(std::int64_t i) {
        const T difference = x(i, 0) - frequency(first + i);
        losses(i) = difference * difference;
      });
}
template <class T>
void misfit_backward(const ostrakon::OperationBackward<T>& call) {
  const auto x = call.inputs[0];
  const auto dx = call.input_gradients[0];
  const auto frequency = call.batch.template array<float>(rows * record_bytes, rows);
  const std::int64_t first = call.first_row;
  const T factor = 2 * call.loss_scale;
  for_each(
      call.exec, x.rows(), x.columns(), KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        dx(i, j) = j == 0 ? factor * (x(i, j) - frequency(first + i)) : T(0);
      });
}

// 3. The model, unit by unit: checked in double, trained in float.
template <class T>
ostrakon::Chain<T> make_chain(std::int64_t tensor_ranks, bool is_wrong = false) {
  ostrakon::Units<T> units;
  units.add("records", [](Builder<T>& b) { return b.floats(points); });
  for (int i = 0; i < 4; ++i)  // x + tanh(x W + b) V + c
    units.add("residual." + std::to_string(i), [=](Builder<T>& b, Value x) {
      const Value up = b.linear(x, "up", 2 * points, {0.1});
      return b.linear_onto(x, b.apply(bend<T>(up, is_wrong && i == 2)), "down", {0.1});
    });
  units.add("misfit", [](Builder<T>& b, Value x) {
    Operation<T> loss{"misfit", {x}, misfit_forward<T>, misfit_backward<T>};
    loss.reads_batch = true;
    return b.losses(loss);
  });
  // Columns in 2 pieces, whichever ranks have them: so tensor ranks change no bit.
  return {std::move(units), {rows, Oscillations().sample_bytes(), 1, tensor_ranks, 2}};
}

const char* const usage =
    "usage: own_model FOLDER STEPS [--resume] [--tensor] [--wrong-gradient]\n";

int run(const ostrakon::Arguments& arguments) {
  bool resumes = false, is_wrong = false;
  std::int64_t tensor_ranks = 1;
  for (std::size_t i = 2; i < arguments.size(); ++i)
    if (arguments[i] == "--resume")
      resumes = true;
    else if (arguments[i] == "--tensor")
      tensor_ranks = 2;
    else if (arguments[i] == "--wrong-gradient")
      is_wrong = true;
    else
      throw ostrakon::CollectiveError(usage);
  if (arguments.size() < 2) throw ostrakon::CollectiveError(usage);
  ostrakon::Mesh mesh(MPI_COMM_WORLD);
  const bool is_root = mesh.world().rank() == 0;
  // 4. Is backward that of forward? What is thrown within run_collectively() is one message of all
  // ranks.
  Oscillations samples;
  mesh.world().run_collectively([&] {
    const auto report = ostrakon::check_gradients(make_chain<double>(1, is_wrong), samples);
    if (!report.passed()) throw ostrakon::Error(report.text());
    if (is_root) std::cout << report.text() << std::endl;
  });
  // 5. How it is trained: samples of a step, optimizer, what is sharded, recomputed and copied.
  ostrakon::TrainerSettings settings;
  settings.steps = std::strtoll(arguments[1].c_str(), nullptr, 10);  // Trainer refuses 0
  settings.global_batch_size = 8 * rows;
  settings.micro_batch_size = rows;
  settings.optimizer.learning_rate = 1e-3;
  settings.schedule.tail = ostrakon::Tail::constant;
  settings.policy.sharding = ostrakon::Sharding::full;
  settings.policy.activation_checkpointing.every = 1;
  settings.checkpoint_staging = true;  // checkpoints are written while steps are taken
  // 6. Training.
  ostrakon::set_matrix_threads(mesh.world());
  ostrakon::Trainer trainer(ostrakon::make_model(make_chain<float>(tensor_ranks)), settings, mesh);
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
