// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/simulate/machine_costs.hpp>

#include "machines.hpp"

namespace ostrakon::tests {
namespace {

using namespace ostrakon::plan;
using namespace ostrakon::simulate;

StepPlan make_plan(int shard, std::vector<Action> actions) {
  StepPlan plan;
  plan.grid = Grid(1, shard, 1);
  plan.layouts.gathered.element_bytes = 4;
  plan.layouts.masters.element_bytes = 4;
  plan.actions = std::move(actions);
  return plan;
}

Action compute(double flops, const KernelWork& work = {}) {
  Action action;
  action.kind = Kind::forward;
  action.flops = flops;
  action.work = work;
  return action;
}

Action collective(Kind kind, int ranks, std::int64_t bytes) {
  Action action;
  action.kind = kind;
  action.stream = kind == Kind::gather ? Stream::gather : Stream::reduce;
  action.span = {Axis::shard, ranks};
  action.elements = bytes;
  action.element_bytes = 1;
  return action;
}

ResourceSeconds cost(const StepPlan& plan, const Machine& machine, int ranks_per_node = 0,
                     Streams streams = Streams::concurrent) {
  return MachineCosts({&plan}, machine, ranks_per_node, streams).seconds(0, plan.actions.front());
}

// 300 operations, 100 of them in attention at half of the rate, and 20 bytes of rows.
TEST(MachineCosts, APhaseIsProductsAttentionAndRows) {
  const KernelWork work = attention_work(100.0, 64) + row_work(20.0, 3.0);
  const StepPlan plan = make_plan(1, {compute(300.0, work)});
  Machine machine = round_machine();
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 2.0 + 2.0 + 2.0);
  machine.kernels.row_kernel_seconds = 0.5;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 6.0 + 1.5);
  machine.fp32.attention = 0.0;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 5.0 + 1.5);
}

TEST(MachineCosts, NarrowProductsAndHeadsAreSlower) {
  const StepPlan narrow = make_plan(1, {compute(200.0, product_work(200.0, 32, 1000))});
  Machine machine = round_machine();
  EXPECT_DOUBLE_EQ(cost(narrow, machine)[Resource::device], 2.0);
  machine.kernels.product_width = 32.0;
  EXPECT_DOUBLE_EQ(cost(narrow, machine)[Resource::device], 4.0) << "half of the rate there";
  machine.kernels.product_seconds = 0.25;
  EXPECT_DOUBLE_EQ(cost(narrow, machine)[Resource::device], 4.25);

  machine.kernels.attention_width = 64.0;
  const auto attention = [&](std::int64_t head_width) {
    const StepPlan plan = make_plan(1, {compute(100.0, attention_work(100.0, head_width))});
    return cost(plan, machine)[Resource::device];
  };
  EXPECT_DOUBLE_EQ(attention(128), 2.0) << "of which the rate is";
  EXPECT_DOUBLE_EQ(attention(64), 2.0 * 2.0 / 1.5);
}

// 500 operations: 100 in attention, 300 in products of 8 bits, three times as fast as the rest.
TEST(MachineCosts, ProductsInEightBitsHaveARateOfTheirOwn) {
  const KernelWork work =
      product_work(100.0, 32, 64) + in_8_bits(product_work(300.0, 32, 64), 300.0);
  Action forward = compute(500.0, work + attention_work(100.0, 128)), backward = forward;
  backward.kind = Kind::backward;
  const StepPlan there = make_plan(1, {forward}), back = make_plan(1, {backward});
  Machine machine = round_machine();
  machine.bits8.products = 300.0;
  EXPECT_DOUBLE_EQ(cost(there, machine)[Resource::device], 1.0 + 1.0 + 2.0);
  machine.kernels.product_width = 32.0;
  EXPECT_DOUBLE_EQ(cost(there, machine)[Resource::device], 2.0 + 2.0 + 2.0) << "narrow, too";
  machine.bits8.product_width = 64.0;
  EXPECT_DOUBLE_EQ(cost(there, machine)[Resource::device], 2.0 + 3.0 + 2.0);
  machine.kernels.backward_products = 1.5;
  EXPECT_DOUBLE_EQ(cost(back, machine)[Resource::device], 1.5 * (2.0 + 3.0) + 2.0);
  EXPECT_DOUBLE_EQ(bounding_rates(machine, 4, 1).flops_per_second, 300.0);
}

TEST(MachineCosts, BackwardIsSlowerByItsFactors) {
  Action backward = compute(300.0, attention_work(100.0, 64));
  backward.kind = Kind::backward;
  const StepPlan plan = make_plan(1, {backward});
  Machine machine = round_machine();
  machine.kernels.backward_products = 1.25;
  machine.kernels.backward_attention = 1.5;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 2.5 + 3.0);
}

TEST(MachineCosts, RowsInBackwardAndActivationsHaveRatesOfTheirOwn) {
  Action backward = compute(0.0, activation_work(30.0, 20.0));
  backward.kind = Kind::backward;
  const StepPlan there = make_plan(1, {compute(0.0, activation_work(30.0, 20.0))}),
                 back = make_plan(1, {backward});
  Machine machine = round_machine();
  EXPECT_DOUBLE_EQ(cost(there, machine)[Resource::device], 2.0) << "in the time of their bytes";
  machine.kernels.backward_rows = 0.5;
  machine.kernels.activations_per_second = 60.0;
  EXPECT_DOUBLE_EQ(cost(there, machine)[Resource::device], 2.0 + 0.5);
  EXPECT_DOUBLE_EQ(cost(back, machine)[Resource::device], 1.0 + 0.5);
}

TEST(MachineCosts, NumbersOfADtypeComeFirst) {
  const StepPlan plan =
      make_plan(1, {compute(200.0, product_work(200.0, 32, 1000) + row_work(20.0))});
  Machine machine = round_machine();
  machine.kernels.product_seconds = 0.25;
  machine.fp32.kernels.product_width = 32.0;
  machine.fp32.kernels.row_bytes_per_second = 40.0;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 4.0 + 0.25 + 0.5);
  machine.bits16.kernels.product_seconds = 100.0;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 4.75) << "of another dtype";
}

// 64 bytes, of which each of 4 ranks has 16 elements of 1 byte that were 4 bytes before.
TEST(MachineCosts, GathersInAnotherDtypeConvert) {
  StepPlan plan = make_plan(4, {collective(Kind::gather, 4, 64)});
  plan.actions.front().converts = true;
  Machine machine = round_machine();
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 80.0 / 10.0);
  machine.update_bytes_per_second = 20.0;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 80.0 / 20.0);
  machine.convert_bytes_per_second = 40.0;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 80.0 / 40.0);
}

TEST(MachineCosts, SumsTakeTheRateOfUpdates) {
  StepPlan plan = make_plan(4, {collective(Kind::reduce_scatter, 4, 64)});
  Machine machine = round_machine();
  machine.update_bytes_per_second = 20.0;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 80.0 / 20.0);
  // What is sent was 4 bytes an element before.
  plan.actions.front().uses = {{Role::packed, 0, Access::write}};
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 64.0 * 5.0 / 20.0 + 80.0 / 20.0);
  machine.convert_bytes_per_second = 40.0;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 64.0 * 5.0 / 40.0 + 80.0 / 20.0);
}

// Faster in backward than in forward: a bound may be no lower.
TEST(MachineCosts, BoundingRatesAreThoseOfTheFasterPass) {
  Machine machine = round_machine();
  EXPECT_DOUBLE_EQ(bounding_rates(machine, 4, 1).flops_per_second, 100.0);
  machine.kernels.backward_products = 0.5;
  EXPECT_DOUBLE_EQ(bounding_rates(machine, 4, 1).flops_per_second, 200.0);
  machine.kernels.backward_attention = 0.125;
  EXPECT_DOUBLE_EQ(bounding_rates(machine, 4, 1).flops_per_second, 400.0);
}

// The phases of a unit, as operations at the rates of a bound, take as long as their kernels.
TEST(MachineCosts, OperationsCanSayWhatKernelsTake) {
  Machine machine = round_machine();
  machine.kernels.backward_products = 3.0;
  Phase phase;
  phase.flops = 300.0;
  phase.work = attention_work(100.0, 64) + row_work(20.0, 3.0);
  phase.recompute_flops = 50.0;
  ModelDescription model;
  model.units.resize(1);
  model.units[0].forward = model.units[0].backward = {phase, phase};
  const Rates rates = bounding_rates(machine, 4, 1);
  model = with_kernel_times(model, machine, rates);
  const UnitDescription& unit = model.units[0];
  EXPECT_DOUBLE_EQ(flops(unit.forward) / rates.flops_per_second, 2.0 * (2.0 + 2.0 + 2.0));
  EXPECT_DOUBLE_EQ(recompute_flops(unit.forward) / rates.flops_per_second, 2.0 * 0.5);
  EXPECT_DOUBLE_EQ(flops(unit.backward) / rates.flops_per_second, 2.0 * (3.0 * 2.0 + 2.0 + 2.0));
}

TEST(MachineCosts, CollectivesTakeTheNetworkOfTheirRanks) {
  const StepPlan plan = make_plan(4, {collective(Kind::gather, 4, 64)});
  EXPECT_DOUBLE_EQ(cost(plan, round_machine())[Resource::inside_nodes], 48.0 / 8.0);
  EXPECT_DOUBLE_EQ(cost(plan, round_machine(), 2)[Resource::across_nodes], 48.0 / 4.0);
  EXPECT_DOUBLE_EQ(cost(plan, round_machine(), 2)[Resource::inside_nodes], 0.0);
}

// Sums in order: an all-to-all, then the sum of four parts of 16 bytes to one.
TEST(MachineCosts, OrderedSumsAreComputed) {
  StepPlan plan = make_plan(4, {collective(Kind::reduce_scatter, 4, 64)});
  Machine machine = round_machine();
  machine.inside_nodes.exchange_bytes_per_second = 4.0;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::inside_nodes], 48.0 / 4.0);
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 80.0 / 10.0);
  plan.layouts.summation = Summation::library;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::inside_nodes], 48.0 / 8.0);
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 0.0);
}

TEST(MachineCosts, UpdatesTakeWhatTheyReadAndWrite) {
  Action update;
  update.kind = Kind::optimize;
  update.elements = 10;
  update.uses = {{Role::shard, 0, Access::read_write},
                 {Role::first_moment, 0, Access::read_write},
                 {Role::gradient_shard, 0, Access::read}};
  StepPlan plan = make_plan(1, {update});
  plan.buffers.resize(1);
  plan.buffers[0].bytes = 40;
  Machine machine = round_machine();
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], (80.0 + 80.0 + 40.0) / 10.0);
  machine.update_bytes_per_second = 20.0;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 10.0);
  plan.actions.front().stream = Stream::host;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 0.0);
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::host], (40.0 + 40.0 + 40.0) / 5.0);
}

TEST(MachineCosts, RanksThatShareCoresShareThemWithCollectives) {
  const StepPlan plan = make_plan(4, {collective(Kind::gather, 4, 64)});
  Machine machine = round_machine();
  machine.cores_per_node = 8;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::inside_nodes], 6.0) << "a core for each is free";
  machine.cores_per_node = 4;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::inside_nodes], 0.0);
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 6.0);
  machine.cores_per_node = 2;
  EXPECT_DOUBLE_EQ(cost(plan, machine)[Resource::device], 12.0);
}

TEST(MachineCosts, ThreadsOfStreamsThatShareACoreSlowIt) {
  Action forward;
  forward.kind = Kind::forward;
  forward.unit = 0;
  forward.flops = 64.0;
  const StepPlan plan = make_plan(4, {forward});
  const auto seconds = [&](const Machine& machine, Streams streams) {
    return MachineCosts({&plan}, machine, 0, streams).seconds(0, plan.actions[0])[Resource::device];
  };
  Machine machine = round_machine();
  machine.cores_per_node = 4;
  const double even = seconds(machine, Streams::concurrent);
  EXPECT_GT(even, 0.0);
  machine.thread_slowdown = 0.25;
  EXPECT_DOUBLE_EQ(seconds(machine, Streams::concurrent), 1.25 * even);
  EXPECT_DOUBLE_EQ(seconds(machine, Streams::one_after_the_other), even);
  machine.cores_per_node = 8;
  EXPECT_DOUBLE_EQ(seconds(machine, Streams::concurrent), even) << "a core for each is free";
}

TEST(MachineCosts, RefusesWhatTheMachineDoesNotHave) {
  StepPlan plan = make_plan(4, {collective(Kind::gather, 4, 64)});
  Machine machine = round_machine();
  machine.across_nodes.bytes_per_second = 0.0;
  EXPECT_NO_THROW(MachineCosts({&plan}, machine, 0, Streams::concurrent));
  EXPECT_THROW(MachineCosts({&plan}, machine, 2, Streams::concurrent), Error);
  plan.layouts.gathered.element_bytes = 2;
  EXPECT_THROW(MachineCosts({&plan}, round_machine(), 0, Streams::concurrent), Error);
}

}  // namespace
}  // namespace ostrakon::tests
