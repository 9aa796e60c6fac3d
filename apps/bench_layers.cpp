// SPDX-License-Identifier: Apache-2.0
#include "bench_layers.hpp"

#include <cstring>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/model/own_operation.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <string>
#include <vector>

namespace ostrakon::bench {
namespace {

using model::UnitBuffers;

class Layers final : public model::Model {
 public:
  Layers(std::int64_t layers, std::int64_t width) : width_(width) {
    const std::int64_t bytes = width * static_cast<std::int64_t>(sizeof(float));
    description_.batch_bytes = NoSamples::bytes;
    description_.gradient_bytes = bytes;
    for (std::int64_t u = 0; u < layers + 2; ++u) {
      const bool is_first = u == 0, is_last = u == layers + 1;
      plan::UnitDescription unit;
      unit.name = is_first ? "embedding" : is_last ? "head" : "block." + std::to_string(u - 1);
      unit.output_bytes = is_last ? static_cast<std::int64_t>(sizeof(float)) : bytes;
      unit.backward_reads_parameters = !is_first;
      std::vector<model::Parameter> parameters;
      if (!is_last) parameters.push_back(model::Parameter::normal("weight", {width}, 0.02));
      const model::SegmentSizes sizes =
          model::lay_out_parameters(parameters, unit.name, model::Frozen());
      unit.parameter_elements = sizes.trained;
      if (!is_first && !is_last) {
        unit.saved_bytes = bytes;
        unit.deferral.backward_at_once = unit.backward;
        unit.backward.emplace_back();
        unit.deferral.phases = 1;
        unit.deferral.bytes = 1;  // marks it as deferred
      }
      description_.units.push_back(std::move(unit));
      parameters_.push_back(std::move(parameters));
    }
  }

  DType dtype() const override { return DType::fp32; }
  int units() const override { return static_cast<int>(parameters_.size()); }
  const std::vector<model::Parameter>& parameters(int unit) const override {
    return parameters_[static_cast<std::size_t>(unit)];
  }
  plan::ModelDescription description() const override { return description_; }
  model::LossTerms loss_terms() const override { return {1, 1, "samples"}; }

  void forward(int unit, const Exec& exec, const UnitBuffers<void>& buffers) const override {
    const Arrays own(*this, buffers);
    if (unit + 1 == units()) return add_up(exec, own);
    const View<const float*> w = own.w, x = own.x;
    const View<float*> u = own.u, y = own.y;
    if (unit == 0) return math::copy<float>(exec, w, y);
    model::for_each(
        exec, width_, KOKKOS_LAMBDA(std::int64_t i) {
          u[i] = w[i] * x[i];
          if (y) y[i] = u[i] + 0.5F * u[i] * u[i];
        });
  }

  void backward(int unit, const Exec& exec, const UnitBuffers<void>& buffers, float loss_scale,
                bool /*gradients_opened*/) const override {
    const Arrays own(*this, buffers);
    if (unit + 1 == units()) {
      add_up(exec, own);
      return math::fill<float>(exec, own.dy, loss_scale / static_cast<float>(width_));
    }
    if (unit == 0) return math::copy<float>(exec, View<const float*>(own.dy), own.dw);
    const bool in_one = !buffers.deferred;
    if (in_one || buffers.phase == 0) of_input(exec, own);
    if (in_one || buffers.phase == 1) of_weight(exec, own);
  }

  // public, as nvcc does not allow device lambdas in private functions
  struct Arrays {
    Arrays(const Layers& layers, const UnitBuffers<void>& buffers)
        : w(of<const float>(buffers.parameters, layers)),
          x(of<const float>(buffers.input, layers)),
          y(view_as<float>(buffers.output)),
          u(of<float>(buffers.saved, layers)),
          dy(of<float>(buffers.gradient, layers)),
          dw(buffers.parameter_gradients ? buffers.parameter_gradients.range(0, layers.width_)
                                         : View<float*>()) {}
    template <class A, class Bytes>
    static View<A*> of(const Bytes& bytes, const Layers& layers) {
      return bytes ? view_as<A>(bytes).range(0, layers.width_) : View<A*>();
    }

    View<const float*> w, x;
    View<float*> y, u, dy, dw;
  };

  /// Adds the mean of the last outputs.
  void add_up(const Exec& exec, const Arrays& own) const {
    const View<const float*> x = own.x;
    const View<float*> loss = own.y;
    const std::int64_t width = width_;
    model::for_each(
        exec, 1, KOKKOS_LAMBDA(std::int64_t) {
          loss[0] = 0.0F;
          for (std::int64_t i = 0; i < width; ++i) loss[0] += x[i] / static_cast<float>(width);
        });
  }
  void of_input(const Exec& exec, const Arrays& own) const {
    const View<const float*> w = own.w;
    const View<float*> u = own.u, dy = own.dy;
    model::for_each(
        exec, width_, KOKKOS_LAMBDA(std::int64_t i) {
          u[i] = dy[i] * (1.0F + u[i]);
          dy[i] = u[i] * w[i];
        });
  }
  void of_weight(const Exec& exec, const Arrays& own) const {
    const View<const float*> x = own.x;
    const View<float*> du = own.u, dw = own.dw;
    model::for_each(
        exec, width_, KOKKOS_LAMBDA(std::int64_t i) { dw[i] = du[i] * x[i]; });
  }

 private:
  std::int64_t width_;
  plan::ModelDescription description_;
  std::vector<std::vector<model::Parameter>> parameters_;
};

}  // namespace

std::unique_ptr<model::Model> make_layers(std::int64_t layers, std::int64_t width) {
  return std::make_unique<Layers>(layers, width);
}

void NoSamples::fill(std::uint64_t /*first*/, std::int64_t count, void* batch) {
  std::memset(batch, 0, static_cast<std::size_t>(count * bytes));
}

}  // namespace ostrakon::bench
