// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/config/stack_file.hpp>
#include <ostrakon/simulate/machine_costs.hpp>
#include <sstream>

#include "machines.hpp"
#include "support/messages.hpp"

namespace ostrakon::tests {
namespace {

using namespace ostrakon::plan;
using namespace ostrakon::simulate;
using Change = std::function<void(Stack&)>;

/// A unit of 8 parameters on 4 ranks, 2 of a node.
StepPlan make_plan(std::vector<Action> actions) {
  StepPlan plan;
  plan.grid = Grid(1, 4, 1);
  plan.layouts.gathered.element_bytes = 2;
  plan.layouts.masters.element_bytes = 4;
  plan.layouts.summation = Summation::library;
  PlannedUnit unit;
  unit.parameter_elements = 8;
  unit.capacity.rows = 1;
  plan.units = {unit};
  plan.actions = std::move(actions);
  return plan;
}

Action act(Kind kind, std::int64_t elements = 0, std::int64_t element_bytes = 4) {
  Action action;
  action.kind = kind;
  action.stream = traits(kind).stream;
  action.unit = 0;
  action.span = {Axis::shard, 4};
  action.elements = elements;
  action.element_bytes = element_bytes;
  return action;
}

Action exchange(Axis axis, ExchangeKind kind) {
  Action action = act(Kind::exchange, 8, 4);
  action.span = {axis, 4};
  action.exchange = kind;
  return action;
}

Machine machine_with(const Change& change) {
  Machine machine = round_machine();
  machine.bits16 = machine.fp32;
  machine.slowdown = 0.25;
  for (Network* network : {&machine.inside_nodes, &machine.across_nodes}) {
    network->base_seconds = 0.5;
    network->step_seconds = 0.125;
  }
  change(machine.stack);
  return machine;
}

/// The time of action `a` where nothing else runs.
double seconds(const StepPlan& plan, const Change& change, std::size_t a = 0) {
  const MachineCosts costs({&plan}, machine_with(change), 2, Streams::concurrent);
  const ResourceSeconds taken = costs.seconds(0, plan.actions[a]);
  double sum = 0.0;
  for (int r = 0; r < resources; ++r) sum += taken[static_cast<Resource>(r)];
  return sum;
}
double seconds(const Action& action, const Change& change) {
  return seconds(make_plan({action}), change);
}
const Change none = [](Stack&) {};

TEST(Stack, KernelsMoveMoreAndAreMore) {
  Action forward = act(Kind::forward);
  forward.flops = 300.0;
  forward.work = attention_work(100.0, 64) + row_work(20.0, 3.0);
  forward.work.products = 4.0;
  EXPECT_DOUBLE_EQ(seconds(forward, none), 2.0 + 2.0 + 2.0) << "products, attention, rows";
  EXPECT_DOUBLE_EQ(seconds(forward, [](Stack& s) { s.row_traffic = 3.0; }), 2.0 + 2.0 + 6.0);
  EXPECT_DOUBLE_EQ(seconds(forward, [](Stack& s) { s.expert_row_traffic = 3.0; }), 10.0);
  EXPECT_DOUBLE_EQ(seconds(forward, [](Stack& s) { s.attention_rate = 2.0; }), 2.0 + 1.0 + 2.0);
  EXPECT_DOUBLE_EQ(seconds(forward,
                           [](Stack& s) {
                             s.launch_seconds = 0.5;
                             s.row_kernels = 2.0;
                           }),
                   6.0 + 0.5 * (4.0 + 2.0 * 3.0));
  // 8 parameters are read in 4 bytes and written in 2, at 10 bytes a second.
  EXPECT_DOUBLE_EQ(seconds(forward, [](Stack& s) { s.autocast = true; }), 6.0 + 4.8);
  forward.phase = 1;
  EXPECT_DOUBLE_EQ(seconds(forward, [](Stack& s) { s.autocast = true; }), 6.0)
      << "the first phase converts";
}

TEST(Stack, CollectivesOfParametersAndGradients) {
  // 8 elements over 4 ranks on 2 nodes: 3/4 of the bytes through 2 links of 2 bytes a second, 1
  // step across, 2 inside.
  const auto ring = [](double bytes) { return 0.5 + 3 * 0.125 + bytes * 0.75 / 4.0; };
  const Action gather = act(Kind::gather, 8, 2), sum = act(Kind::reduce_scatter, 8, 4);
  EXPECT_DOUBLE_EQ(seconds(gather, none), ring(16));
  EXPECT_DOUBLE_EQ(seconds(gather, [](Stack& s) { s.autocast = true; }), ring(32));
  EXPECT_DOUBLE_EQ(seconds(sum, none), ring(32));
  EXPECT_DOUBLE_EQ(seconds(sum, [](Stack& s) { s.sum_bits = 16; }), ring(16));
  EXPECT_DOUBLE_EQ(seconds(sum, [](Stack& s) { s.sum_bits = 64; }), ring(32)) << "at most";

  const StepPlan twice = make_plan({sum, sum});
  const Change once = [](Stack& s) { s.reduces_once = true; };
  EXPECT_EQ(seconds(twice, once, 0), 0.0);
  EXPECT_DOUBLE_EQ(seconds(twice, once, 1), ring(32));

  const Action updates = act(Kind::gather_updates, 8, 4);
  EXPECT_DOUBLE_EQ(seconds(updates, none), ring(32));
  EXPECT_DOUBLE_EQ(seconds(updates, [](Stack& s) { s.hides_updates = true; }),
                   ring(32) * 0.25 / 1.25)
      << "what it slows down";
  EXPECT_DOUBLE_EQ(seconds(updates, [](Stack& s) { s.update_calls = 3.0; }),
                   ring(32) + 2.0 * (0.5 + 3 * 0.125));
  EXPECT_DOUBLE_EQ(seconds(updates, [](Stack& s) { s.update_calls = 9.0; }),
                   ring(32) + 3.0 * (0.5 + 3 * 0.125))
      << "a call for each rank at most";
}

TEST(Stack, AllReducesMayBeTrees) {
  const Change trees = [](Stack& s) { s.all_reduce_trees = true; };
  const Action sum = act(Kind::reduce_scatter, 8, 4);
  EXPECT_DOUBLE_EQ(seconds(sum, trees), seconds(sum, none)) << "nothing is gathered then";
  const StepPlan both = make_plan({sum, act(Kind::gather_gradients, 8, 4)});
  const double tree = 0.25 + 0.125 + 0.125 + 32 * 0.75 / (4.0 * 0.85);
  EXPECT_LT(seconds(both, none), tree) << "a ring over two nodes is faster";
  EXPECT_DOUBLE_EQ(seconds(both, trees), seconds(both, none));
  const StepPlan small = make_plan({act(Kind::reduce_scatter, 1, 4), act(Kind::gather_gradients)});
  EXPECT_DOUBLE_EQ(seconds(small, trees), 0.25 + 0.125 + 0.125 + 4 * 0.75 / (4.0 * 0.85));
}

TEST(Stack, AllReducesAreOneCall) {
  const Change whole = [](Stack& s) { s.all_reduces = true; };
  const Action sum = act(Kind::reduce_scatter, 8, 4), gather = act(Kind::gather_gradients, 8, 4);
  const StepPlan both = make_plan({sum, gather});
  EXPECT_GT(seconds(both, none, 1), 0.0);
  EXPECT_DOUBLE_EQ(seconds(both, whole), seconds(both, none) + seconds(both, none, 1));
  EXPECT_DOUBLE_EQ(seconds(both, whole, 1), 0.0);
  EXPECT_DOUBLE_EQ(seconds(sum, whole), seconds(sum, none)) << "nothing is gathered then";
}

TEST(Stack, ExchangesAndMessages) {
  const auto ring = 0.5 + 3 * 0.125 + 32 * 0.75 / 4.0;
  StepPlan sum = make_plan({exchange(Axis::tensor, ExchangeKind::reduce_scatter)});
  sum.grid = Grid(1, 1, 1, 1, 4);
  EXPECT_NE(seconds(sum, none), ring) << "an all-to-all";
  EXPECT_DOUBLE_EQ(seconds(sum, [](Stack& s) { s.exchange_rings = true; }), ring);
  EXPECT_DOUBLE_EQ(seconds(sum,
                           [](Stack& s) {
                             s.exchange_rings = true;
                             s.exchange_exposed = 0.25;
                           }),
                   0.25 * ring);
  const Change passed_on = [](Stack& s) { s.context_ring = true; };
  EXPECT_DOUBLE_EQ(seconds(exchange(Axis::shard, ExchangeKind::gather), passed_on), 3 * 0.5);
  const Action tokens = exchange(Axis::shard, ExchangeKind::all_to_all);
  EXPECT_DOUBLE_EQ(seconds(tokens, passed_on), seconds(tokens, none)) << "to experts";
  EXPECT_DOUBLE_EQ(seconds(tokens, [](Stack& s) { s.exchange_exposed = 0.25; }),
                   seconds(tokens, none));

  StepPlan plan = make_plan({act(Kind::send, 8, 2)});
  plan.actions[0].peer = 0;  // on the same node
  const MachineCosts costs({&plan}, machine_with([](Stack& s) { s.blocking_messages = true; }), 4,
                           Streams::concurrent);
  EXPECT_DOUBLE_EQ(costs.seconds(0, plan.actions[0])[Resource::device], 0.5 + 16 / 8.0);
}

/// An embedding, a block of two phases, and a head, of two tensor ranks.
ModelDescription make_model() {
  ModelDescription model;
  model.tensor_ranks = 2;
  for (const char* name : {"embedding", "block.0", "head"}) {
    UnitDescription unit;
    unit.name = name;
    unit.output_bytes = 512;
    unit.forward = Phases(2);
    unit.backward = Phases(2);
    unit.forward[0].flops = 100.0;
    unit.forward[0].work = attention_work(40.0, 4) + row_work(30.0, 2.0);
    unit.forward[0].recompute_flops = 60.0;
    unit.forward[0].recompute_work = attention_work(40.0, 4);
    unit.forward[1].flops = 10.0;
    unit.forward[1].work.products = 2.0;
    unit.backward[0].flops = 200.0;
    unit.backward[0].work = attention_work(100.0, 4);
    model.units.push_back(unit);
  }
  return model;
}
UnitDescription changed(const Change& change, std::size_t unit = 1) {
  Stack stack;
  change(stack);
  return computed_by(stack, make_model(), Policy()).units[unit];
}

TEST(Stack, AttentionInMemoryHasWholeProducts) {
  const UnitDescription unit = changed([](Stack& s) { s.attention_in_memory = true; });
  // The causal half of two products of s x s x 4 is 40 operations: s s is 5 for one head.
  EXPECT_DOUBLE_EQ(unit.forward[0].flops, 100.0 + 40.0);
  EXPECT_DOUBLE_EQ(unit.forward[0].work.attention_flops, 0.0);
  EXPECT_DOUBLE_EQ(unit.forward[0].work.products_by_width, 80.0 / 4.0);
  EXPECT_DOUBLE_EQ(unit.forward[0].work.row_bytes, 30.0 + 2.0 * 2.0 * 5.0);
  EXPECT_DOUBLE_EQ(unit.forward[0].recompute_flops, 60.0 + 40.0) << "without the last product";
  EXPECT_DOUBLE_EQ(unit.forward[0].recompute_work.row_bytes, 2.0 * 2.0 * 5.0);
  // Backward has four whole products, as it does not compute scores again.
  EXPECT_DOUBLE_EQ(unit.backward[0].flops, 200.0 + 4 * 40.0 - 100.0);
  EXPECT_DOUBLE_EQ(unit.backward[0].work.row_bytes, 1.5 * 2.0 * 2.0 * 5.0);
}

TEST(Stack, OperandsAreRoundedByOtherKernels) {
  const ModelDescription as_stored = make_model();
  ModelDescription model = as_stored;
  for (KernelWork* work : {&model.units[1].forward[0].work, &model.units[1].backward[0].work})
    *work += row_work(100.0, 2.0);
  Stack stack;
  stack.rounding_traffic = 0.25;
  const UnitDescription unit = rounded_by(stack, model, as_stored).units[1];
  const UnitDescription& stored = as_stored.units[1];
  EXPECT_DOUBLE_EQ(unit.forward[0].work.row_bytes, stored.forward[0].work.row_bytes + 25.0);
  EXPECT_DOUBLE_EQ(unit.forward[0].work.row_kernels, stored.forward[0].work.row_kernels + 0.5);
  EXPECT_DOUBLE_EQ(unit.backward[0].work.row_bytes, stored.backward[0].work.row_bytes + 25.0);
  EXPECT_DOUBLE_EQ(unit.forward[1].work.row_bytes, stored.forward[1].work.row_bytes);
}

TEST(Stack, BlocksComputeMore) {
  const UnitDescription rows = changed([](Stack& s) { s.whole_rows = true; });
  EXPECT_DOUBLE_EQ(rows.forward[0].work.row_bytes, 30.0 + 1024 * 10.0 / 2.0);
  EXPECT_DOUBLE_EQ(rows.backward[0].work.row_bytes, 2 * 1024 * 10.0 / 2.0);
  const Change dropout = [](Stack& s) { s.dropout = true; };
  EXPECT_DOUBLE_EQ(changed(dropout).forward[0].work.row_bytes, 30.0 + 1024);
  EXPECT_DOUBLE_EQ(changed(dropout, 0).forward[0].work.row_bytes, 30.0) << "an embedding";
  const UnitDescription again = changed([](Stack& s) {
    s.again_products = 0.5;
    s.again_rows = 1.0;
    s.again_attention = 0.25;
  });
  EXPECT_DOUBLE_EQ(again.backward[0].flops, 200.0 + 0.5 * 70.0 + 0.25 * 40.0);
  EXPECT_DOUBLE_EQ(again.backward[0].work.attention_flops, 100.0 + 10.0);
  EXPECT_DOUBLE_EQ(again.backward[0].work.row_bytes, 30.0);
  EXPECT_DOUBLE_EQ(again.backward[0].work.products, 1.0);
  EXPECT_DOUBLE_EQ(changed([](Stack& s) { s.recomputes_all = true; }).forward[0].recompute_flops,
                   100.0);
  EXPECT_DOUBLE_EQ(changed([](Stack& s) { s.keeps_logits = true; }, 2).backward[0].flops,
                   200.0 - 110.0);
  Policy policy;
  policy.activation_checkpointing.every = 1;
  Stack stack;
  stack.again_rows = 1.0;
  EXPECT_THROW(computed_by(stack, make_model(), policy), Error);
}

TEST(Stack, ExchangesOfTensorRanksAreSmaller) {
  ModelDescription model = make_model();
  model.units[1].forward[0].then = Exchange{ExchangeKind::gather, {Axis::tensor, 2}, 256, 4};
  model.units[1].forward[1].then = Exchange{ExchangeKind::gather, {Axis::tensor, 2}, 2, 4};
  Stack stack;
  stack.exchange_bits = 16;
  stack.whole_vectors = true;
  const UnitDescription unit = computed_by(stack, model, Policy()).units[1];
  EXPECT_EQ(unit.forward[0].then->element_bytes, 2);
  EXPECT_FALSE(unit.forward[0].then->empty_if_even);
  EXPECT_TRUE(unit.forward[1].then->empty_if_even) << "a vector";
}

TEST(Stack, Orders) {
  StepPlan plan =
      make_plan({exchange(Axis::tensor, ExchangeKind::gather), act(Kind::forward),
                 act(Kind::reduce_scatter), act(Kind::backward), act(Kind::reduce_scatter)});
  Stack stack;
  stack.exchanges_in_order = stack.reduces_at_end = true;
  StepPlan again = plan;
  EXPECT_THROW(order_as(stack, again), Error) << "a unit's gradients are summed twice";
  plan.actions[4].unit = 1;
  order_as(stack, plan);
  ASSERT_EQ(plan.actions[1].waits.size(), 1U);
  EXPECT_EQ(plan.actions[1].waits[0], 0);
  ASSERT_EQ(plan.actions[2].waits.size(), 1U);
  EXPECT_EQ(plan.actions[2].waits[0], 3);
  EXPECT_TRUE(plan.actions[3].waits.empty());
  EXPECT_EQ(planned_by(stack, Policy(), make_model()).in_flight_reductions, 3);
}

std::string refusal(const std::string& keys) {
  return testing::error_of([&] { config::read_stack("ostrakon:\n  stack:\n" + keys, "my.yaml"); });
}

TEST(StackFile, WrongKeysAreNamed) {
  EXPECT_EQ(refusal("    row_trafic: 2\n"),
            "my.yaml: unknown key stack.row_trafic; did you mean row_traffic?");
  EXPECT_EQ(refusal("    dropout: 2\n"),
            "my.yaml: stack.dropout = 2: expected 0, or 1: dropout after attention and MLP, and of "
            "scores in memory");
  EXPECT_EQ(
      refusal("    attention_rate: 0\n")
          .rfind("my.yaml: stack.attention_rate = 0: expected a number from 0.001 to 1000", 0),
      0U);
  EXPECT_EQ(refusal("    sum_bits: 12\n"),
            "my.yaml: stack.sum_bits = 12: expected 0, 8, 16, 32 or 64");
  EXPECT_EQ(refusal("    name: 3\n"), "my.yaml: stack.name = 3: expected text");
  EXPECT_EQ(refusal("    dropout: 0\n"), "no error") << "Ostrakon's";
  EXPECT_EQ(refusal("    dropout: 1\n"),
            "my.yaml: stack.name is missing; expected text, as the other keys are not Ostrakon's");
  EXPECT_EQ(refusal("    dropout: 1\n  machine:\n    name: x\n"),
            "my.yaml: unknown section machine; a stack file has the section stack alone");
}

TEST(StackFile, EveryKeyIsRead) {
  std::string keys = "    name: \"theirs\"\n";
  for (const StackKey& key : stack_keys()) {
    const std::string value = key.flag != nullptr ? "1" : key.most >= 16.0 ? "16" : "0.5";
    keys += "    " + std::string(key.key) + ": " + value + "\n";
  }
  const Stack stack = config::read_stack("ostrakon:\n  stack:\n" + keys, "my.yaml");
  for (const StackKey& key : stack_keys()) {
    if (key.flag != nullptr)
      EXPECT_TRUE(stack.*key.flag) << key.key;
    else
      EXPECT_DOUBLE_EQ(stack.*key.number, (key.most >= 16.0 ? 16.0 : 0.5) * key.unit) << key.key;
    Stack one;
    if (key.flag != nullptr)
      one.*key.flag = true;
    else
      one.*key.number = stack.*key.number;
    EXPECT_FALSE(is_ostrakon(one)) << key.key;
  }
  EXPECT_TRUE(is_ostrakon(Stack()));
}

TEST(StackFile, ShippedOnesAreRead) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(OSTRAKON_MACHINES) / "stacks")) {
    if (entry.path().extension() != ".yaml") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const Stack stack = config::read_stack(text.str(), entry.path().string());
    EXPECT_EQ(is_ostrakon(stack), entry.path().stem() == "ostrakon") << entry.path();
    ++files;
  }
  EXPECT_GE(files, 8);
}

TEST(StackFile, ThePageHasAllKeys) {
  std::stringstream page;
  page << std::ifstream(std::filesystem::path(OSTRAKON_MACHINES) / "../docs/machine-files.md")
              .rdbuf();
  for (const StackKey& key : stack_keys())
    EXPECT_NE(page.str().find("`" + std::string(key.key) + "`"), std::string::npos) << key.key;
}

TEST(StackFile, AMachineFileMayHaveOne) {
  const std::string text = smallest_machine_file + R"(  stack:
    name: "theirs"
    row_traffic: 2
)";
  const Machine machine = config::read_machine(text, "my.yaml");
  EXPECT_EQ(machine.stack.name, "theirs");
  EXPECT_DOUBLE_EQ(machine.stack.row_traffic, 2.0);
  EXPECT_THROW(config::require_own_steps(machine, "own"), Error);
  EXPECT_NO_THROW(config::require_own_steps(Machine(), "own"));
}

}  // namespace
}  // namespace ostrakon::tests
