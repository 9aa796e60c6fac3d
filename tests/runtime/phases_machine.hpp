// SPDX-License-Identifier: Apache-2.0
#pragma once

// The model of residual_block.hpp, planned for 1 or 2 ranks that compute its middle unit together,
// and its runs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/plan/timing/traffic.hpp>
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/runtime/executor.hpp>

#include "residual_block.hpp"

namespace ostrakon::tests {

inline plan::ModelDescription describe(int ranks) {
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
  // Saved: the gathered rows, and this rank's features of each row.
  block.saved_bytes = 4 * (ranks * activations + rows * hidden);
  const plan::Span span{plan::Axis::shard, ranks};
  const plan::Exchange gather{plan::ExchangeKind::gather, span, ranks * activations, 4};
  const plan::Exchange sum{plan::ExchangeKind::reduce_scatter, span, ranks * activations, 4};
  for (plan::Phases* phases : {&block.forward, &block.backward}) {
    phases->assign(3, {});
    (*phases)[0].then = gather;
    (*phases)[1].then = sum;
    (*phases)[1].reads = {0};
    (*phases)[2].reads = {1};
  }
  // Workspace: partial sums of a slice; in backward, gradients of the rows of one rank.
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
    return static_cast<double>(sum_) * loss_unit;
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
      if (action.kind == plan::Kind::exchange) bytes += program_.plan.bytes_sent(action);
    return bytes;
  }
  std::int64_t exchanged_bytes() const { return exchange_.bytes_sent(); }
  int ranks() const { return world_.size(); }
  int actions_of(plan::Kind kind) const {
    int count = 0;
    for (const plan::Action& action : program_.plan.actions) count += action.kind == kind ? 1 : 0;
    return count;
  }

 private:
  using Buffers = runtime::ActionBuffers;

  runtime::Program make_program(int every) const {
    plan::Policy policy;
    policy.leaves = leaves;
    policy.moment_count = 0;
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
  std::int64_t shard_elements(int u) const {
    return program_.plan.elements(unit(u).flats, program_.plan.layouts.masters.divided);
  }
  std::int64_t first_element(int u) const {
    return program_.plan.first_element(unit(u).flats.first, program_.plan.layouts.masters.divided,
                                       world_.rank());
  }

  // --- handlers

  void set_handlers() {
    executor_.on(plan::Kind::begin,
                 [](const Buffers& at) { at.host_view<std::int64_t>(plan::Role::sums)[0] = 0; });
    executor_.on(plan::Kind::load, [this](const Buffers& at) {
      const std::int64_t leaf = program_.plan.leaf(world_.rank(), at.action.micro_batch);
      read_leaf(leaf, at.host_view<float>(plan::Role::host_batch).data());
    });
    for (const plan::Kind copy : {plan::Kind::copy_to_device, plan::Kind::copy_to_host})
      executor_.on(copy, [](const Buffers& at) {
        const auto source = at.host_view<char>(plan::Role::source);
        std::copy_n(source.data(), source.size(), at.host_view<char>(plan::Role::target).data());
      });
    executor_.on(plan::Kind::gather, [this](const Buffers& at) {
      gather_.all_gather<float, OnHost>(at.exec, part_of(at, plan::Role::shard),
                                        all_of(at, plan::Role::parameters));
    });
    executor_.on(plan::Kind::exchange, [this](const Buffers& at) { exchange(at); });
    executor_.on(plan::Kind::forward, [this](const Buffers& at) { forward(at); });
    executor_.on(plan::Kind::recompute, [this](const Buffers& at) { block_forward(at); });
    executor_.on(plan::Kind::backward, [this](const Buffers& at) { backward(at); });
    executor_.on(plan::Kind::loss, [](const Buffers& at) {
      for (int r = 0; r < rows; ++r)
        at.host_view<std::int64_t>(plan::Role::sums)[0] += std::llround(
            static_cast<double>(at.host_view<float>(plan::Role::output)[r]) / loss_unit);
    });
    executor_.on(plan::Kind::reduce_scatter, [this](const Buffers& at) {
      reduce_.reduce_scatter<float, OnHost>(at.exec, all_of(at, plan::Role::parameter_gradients),
                                            all_of(at, plan::Role::staging),
                                            part_of(at, plan::Role::gradient_shard));
    });
    executor_.on(plan::Kind::accumulate, [](const Buffers& at) {
      for (std::int64_t i = 0; i < at.action.elements; ++i)
        at.host_view<float>(plan::Role::parameter_gradients)[i] +=
            at.host_view<float>(plan::Role::source)[i];
    });
    executor_.on(plan::Kind::norm, [](const Buffers&) {});
    executor_.on(plan::Kind::clip, [this](const Buffers& at) {
      sum_ = at.host_view<std::int64_t>(plan::Role::sums)[0];
      world_.sum(&sum_, 1);
    });
    executor_.on(plan::Kind::optimize, [](const Buffers& at) {
      update(at.host_view<float>(plan::Role::shard).data(),
             at.host_view<float>(plan::Role::gradient_shard).data(), at.action.elements);
    });
  }

  /// Returns the data of a collective: of all ranks, and of this rank.
  static HostView<float*> all_of(const Buffers& at, plan::Role role) {
    return at.host_view<float>(role).range(0, at.action.elements);
  }
  static HostView<float*> part_of(const Buffers& at, plan::Role role) {
    return at.host_view<float>(role).range(0, at.action.elements / at.action.span.ranks);
  }

  void exchange(const Buffers& at) {
    if (at.action.exchange == plan::ExchangeKind::gather)
      exchange_.all_gather<float, OnHost>(at.exec, part_of(at, plan::Role::send_buffer),
                                          all_of(at, plan::Role::recv_buffer));
    else
      exchange_.reduce_scatter<float, OnHost>(at.exec, all_of(at, plan::Role::send_buffer),
                                              all_of(at, plan::Role::staging),
                                              part_of(at, plan::Role::recv_buffer));
  }

  void forward(const Buffers& at) {
    if (at.action.unit == 1) return block_forward(at);
    for (int e = 0; e < rows * width; ++e)
      at.host_view<float>(plan::Role::output)[e] =
          at.host_view<float>(plan::Role::batch)[e] *
          at.host_view<float>(plan::Role::parameters)[e % width];
  }

  void backward(const Buffers& at) {
    if (at.action.unit == 1) return block_backward(at);
    auto* gradients = at.host_view<float>(plan::Role::parameter_gradients).data();
    clear_gradients(at, gradients);
    for (int r = 0; r < rows; ++r) {
      float* gradient = at.host_view<float>(plan::Role::gradient).data() + r * width;
      const float* batch = at.host_view<float>(plan::Role::batch).data();
      if (at.action.unit == 2)
        at.host_view<float>(plan::Role::output)[r] =
            head(at.host_view<float>(plan::Role::parameters).data(),
                 at.host_view<float>(plan::Role::input).data() + r * width, batch[rows * width + r],
                 gradients, gradient);
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
  /// Returns the features of a row for this rank's n-th slice, which are saved behind the rows.
  float* features(const Buffers& at, int row, int n) const {
    return at.host_view<float>(plan::Role::saved).data() + all_rows() * width +
           (row * slices_of_rank() + n) * of_slice;
  }

  void block_forward(const Buffers& at) {
    if (at.action.phase == 0) {
      std::copy_n(at.host_view<float>(plan::Role::input).data(), rows * width,
                  at.host_view<float>(plan::Role::send_buffer).data());
    } else if (at.action.phase == 1) {
      const Weights weights(at.host_view<float>(plan::Role::parameters).data());
      auto* x = at.host_view<float>(plan::Role::saved).data();
      std::copy_n(at.host_view<float>(plan::Role::recv_buffer).data(), all_rows() * width, x);
      auto* part = at.host_view<float>(plan::Role::workspace).data();
      for (int r = 0; r < all_rows(); ++r)
        for (int n = 0; n < slices_of_rank(); ++n) {
          slice_forward(weights, first_slice() + n, x + r * width, features(at, r, n), part);
          take(part, n, at.host_view<float>(plan::Role::send_buffer).data() + r * width);
        }
    } else if (auto* output = at.host_view<float>(plan::Role::output).data(); output != nullptr) {
      for (int e = 0; e < rows * width; ++e)
        output[e] = at.host_view<float>(plan::Role::input)[e] +
                    at.host_view<float>(plan::Role::recv_buffer)[e];
    }
  }

  void block_backward(const Buffers& at) {
    if (at.action.phase == 0) {
      clear_gradients(at, at.host_view<float>(plan::Role::parameter_gradients).data());
      std::copy_n(at.host_view<float>(plan::Role::gradient).data(), rows * width,
                  at.host_view<float>(plan::Role::send_buffer).data());
    } else if (at.action.phase == 1) {
      const Weights weights(at.host_view<float>(plan::Role::parameters).data());
      auto* part = at.host_view<float>(plan::Role::workspace).data();
      float* of_leaf = part + width;
      for (int leaf = 0; leaf < world_.size(); ++leaf) {
        std::fill_n(of_leaf, block_elements, 0.0f);
        for (int r = leaf * rows; r < (leaf + 1) * rows; ++r)
          for (int n = 0; n < slices_of_rank(); ++n) {
            slice_backward(
                weights, first_slice() + n,
                at.host_view<float>(plan::Role::saved).data() + r * width, features(at, r, n),
                at.host_view<float>(plan::Role::recv_buffer).data() + r * width, of_leaf, part);
            take(part, n, at.host_view<float>(plan::Role::send_buffer).data() + r * width);
          }
        for (int e = 0; e < block_elements; ++e)
          at.host_view<float>(plan::Role::parameter_gradients)[e] += of_leaf[e];
      }
    } else {
      for (int e = 0; e < rows * width; ++e)
        at.host_view<float>(plan::Role::gradient)[e] +=
            at.host_view<float>(plan::Role::recv_buffer)[e];
    }
  }

  /// Adds the n-th slice of this rank to the sum.
  static void take(const float* part, int n, float* sum) {
    for (int i = 0; i < width; ++i) sum[i] = n == 0 ? part[i] : sum[i] + part[i];
  }

  comm::Communicator world_, gather_, reduce_, exchange_;
  const runtime::Program program_;
  runtime::Arena device_, host_;
  runtime::Executor executor_;
  std::int64_t sum_ = 0;  ///< sum of losses over all ranks
};

}  // namespace ostrakon::tests
