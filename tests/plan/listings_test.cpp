// SPDX-License-Identifier: Apache-2.0

// Pins the planner. listings.txt shows small plans, a line for each action but releases, and hashes
// of families of random plans and those of the shipped decks. A change to the planner shows there
// which plans change. Where they are meant to:
//   cp build-ci/tests/plan/listings.txt tests/plan/listings.txt
// after the test has failed, and the commit says which and why. Where only a family's hash changes,
// the program with OSTRAKON_TEST_LISTINGS=1 writes a file of each family's plans: to compare two
// versions of the planner with diff.

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hash.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <set>

#include "model/golden_file.hpp"
#include "plan/random_pipelines.hpp"
#include "plan/tensor_plans.hpp"

namespace ostrakon::tests {
namespace {

/// Returns a hash of all that a plan determines; lifetimes follow from uses.
std::uint64_t digest(const StepPlan& plan) {
  Hasher hasher;
  hasher.add(plan.hash(), plan.frozen_count, plan.sums, plan.checkpoint);
  for (const Buffer& buffer : plan.buffers) hasher.add(buffer.category);
  for (const Action& action : plan.actions) hasher.add(action.flops);
  for (const PlannedUnit& unit : plan.units)
    hasher.add(unit.name, unit.masters, unit.compute_copy, unit.first_moments, unit.second_moments,
               unit.gradients);
  const Grid& grid = plan.grid;
  hasher.add(grid.node, plan.has_the_bits_of_one_rank());
  for (int rank = 0; rank < std::min(grid.ranks(), 64); ++rank)
    for (std::int64_t m = 0; m < grid.micro_batches(); ++m) hasher.add(plan.leaf(rank, m));
  return hasher.value();
}

std::string words(const Spans& spans) {
  std::string words;
  for (const Span& span : spans)
    words +=
        text(" ", name(span.axis), " ", span.ranks, span.stride > 1 ? text("/", span.stride) : "");
  return words.empty() ? " whole" : words;
}

/// The action with the buffers that it reads, updates and writes, and what it waits for.
std::string line_of(const StepPlan& plan, const Action& action) {
  std::string line = text("  ", name(action.stream), ": ", plan.describe(action));
  if (action.span.ranks > 1) line += " over" + words(Spans{action.span});
  constexpr std::pair<Access, const char*> accesses[] = {
      {Access::read, "reads"}, {Access::read_write, "updates"}, {Access::write, "writes"}};
  for (const auto& [access, verb] : accesses) {
    std::string names;
    for (const Use& use : action.uses)
      if (use.access == access)
        names += (names.empty() ? " " : ", ") + plan.buffers[use.buffer].name;
    if (!names.empty()) line += text(" | ", verb, names);
  }
  const char* after = " | after ";
  for (int wait : action.waits) {
    line += after + plan.describe(plan.actions[wait]);
    after = ", ";
  }
  return line + "\n";
}

std::string listing(const StepPlan& plan) {
  const Layouts& layouts = plan.layouts;
  const Grid& grid = plan.grid;
  std::string lines = text(
      "  ", name(plan.purpose), " on ", grid.ranks(), " ranks, stage ", plan.stage, ", ",
      grid.micro_batches(), " micro-batches, sums ", name(layouts.accumulation), "; masters",
      words(layouts.masters.divided), ", compute", words(layouts.compute.divided), ", gradient",
      words(layouts.gradient.divided), ", update", words(layouts.update.divided), "\n");
  for (const Action& action : plan.actions)
    if (action.kind != Kind::release) lines += line_of(plan, action);
  return lines;
}

// ---- small plans

/// An embedding, a block and a head.
struct Small {
  ModelDescription model;
  Policy policy;
  int ranks = 2;
  std::vector<UnitRange> stages = {{0, 3}};
  Purpose purpose = Purpose::train;

  explicit Small(bool tied = false) : model(make_model(1, tied, 3)), policy(make_policy(2)) {}
  UnitDescription& block() { return model.units[1]; }
};

/// With an exchange over `span` before the last of two phases of the block.
void exchange(Small& small, ExchangeKind kind, const Span& span) {
  for (Phases* phases : {&small.block().forward, &small.block().backward}) {
    phases->front().then = Exchange{kind, span, 640 * span.ranks, 4};
    phases->emplace_back();
    phases->back().reads = {0};
  }
}

std::vector<std::pair<const char*, std::function<void(Small&)>>> small_plans() {
  const auto sharding = [](Sharding kind) {
    return [=](Small& its) { its.policy.sharding = kind; };
  };
  const auto tied = [](bool apart) {
    return [=](Small& its) {
      its = Small(true);
      its.policy.leaves = apart ? 4 : 2;
      its.model.units.back().sums_tied_apart = apart;
    };
  };
  const auto purpose = [](Purpose kind) { return [=](Small& its) { its.purpose = kind; }; };
  const auto two_stages = [](ScheduleKind schedule) {
    return [=](Small& its) {
      its.ranks = 1;
      its.policy.schedule = schedule;
      its.stages = {{0, 1}, {1, 3}};
      its.block().deferral.backward_at_once = its.block().backward;
      its.block().backward.emplace_back();
      its.block().deferral.phases = 1;
      its.block().reads_batch = false;
    };
  };
  return {{"nothing sharded", sharding(Sharding::none)},
          {"optimizer sharded, two micro-batches",
           [](Small& its) {
             its.policy.sharding = Sharding::optimizer;
             its.policy.leaves = 4;
           }},
          {"gradients sharded, 16-bit copies to compute with, optimizer over all ranks",
           [](Small& its) {
             its.ranks = 4;
             its.policy.leaves = 4;
             its.policy.shard_group = 2;
             its.policy.sharding = Sharding::gradients;
             its.policy.shard_optimizer_over = OptimizerGroup::world;
             its.model.element_bytes = 2;
           }},
          {"all sharded", sharding(Sharding::full)},
          {"all sharded, nothing ahead, block gathered again",
           [](Small& its) {
             its.policy.forward_prefetch.depth = its.policy.backward_prefetch.depth = 0;
             its.policy.in_flight_reductions = 0;
             its.policy.reshard_after_forward.kind = Reshard::always;
           }},
          {"all sharded in two levels, half kept after forward",
           [](Small& its) {
             its.ranks = 4;
             its.policy.leaves = 4;
             its.policy.ranks_per_node = 2;
             its.policy.hierarchical = {Hierarchical::always, 1};
             its.policy.reshard_after_forward = {Reshard::partly, 2};
           }},
          {"two replicas, trees over a grain of one leaf",
           [](Small& its) {
             its.ranks = 4;
             its.policy.leaves = 8;
             its.policy.shard_group = 2;
             its.policy.sum_grain = 1;
           }},
          {"tied, gradients added in each leaf", tied(false)},
          {"tied, gradients added last", tied(true)},
          {"all on the host, updated early",
           [](Small& its) {
             its.policy.offload = Offload::all;
             its.policy.offload_activations = its.policy.early_updates = true;
           }},
          {"optimizer on the host", [](Small& its) { its.policy.offload = Offload::optimizer; }},
          {"frozen embedding, whole matrices, a copy for checkpoints",
           [](Small& its) {
             its.model.units[0].frozen_elements = its.model.units[0].parameter_elements;
             its.block().whole_matrices = {{64, 640, 100.0}};
             its.block().orthogonalize_workspace_bytes = 4096;
             its.policy.checkpoint_staging = true;
           }},
          {"block computed again",
           [](Small& its) {
             its.block().recomputes = true;
             its.policy.activation_checkpointing.every = 1;
           }},
          {"tensor ranks",
           [](Small& its) {
             its.model.tensor_ranks = its.policy.tensor_ranks = 2;
             its.policy.leaves = 1;
             exchange(its, ExchangeKind::gather, {Axis::tensor, 2});
           }},
          {"tensor ranks, two exchanges that overlap, computed again",
           [](Small& its) {
             its.model.tensor_ranks = its.policy.tensor_ranks = 2;
             its.policy.leaves = 1;
             its.policy.activation_checkpointing.every = 1;
             its.block().recomputes = true;
             const Exchange sum{ExchangeKind::reduce_scatter, {Axis::tensor, 2}, 1280, 4};
             its.block().forward = {{1.0, 1.0, 64, sum},
                                    {2.0, 2.0, 256, sum},
                                    {4.0, 4.0, 128, {}},
                                    {8.0, 8.0, 32, {}, {0, 1}}};
             its.block().forward[1].keeps_workspace = true;
           }},
          {"experts over neighbours",
           [](Small& its) {
             its.policy.expert_ranks = its.block().expert_ranks = 2;
             its.block().parameter_elements = 1280;
             exchange(its, ExchangeKind::all_to_all, {Axis::shard, 2});
           }},
          {"two stages, 1f1b", two_stages(ScheduleKind::one_forward_one_backward)},
          {"two stages, zero bubble, updates verified",
           [=](Small& its) {
             two_stages(ScheduleKind::zero_bubble)(its);
             its.policy.updates = Updates::optimistic;
           }},
          {"evaluation", purpose(Purpose::evaluate)},
          {"export", purpose(Purpose::export_parameters)},
          {"generation, on one rank", [](Small& its) {
             its.ranks = 1;
             its.purpose = Purpose::decode;
           }}};
}

// ---- families

/// Lines of name and hash, by family.
using Families = std::map<std::string, std::vector<std::string>>;

/// Adds a plan, and writes its listing where listings are asked for.
void add(Families& families, const std::string& family, const std::string& described,
         const std::vector<StepPlan>& stages) {
  static const bool lists = std::getenv("OSTRAKON_TEST_LISTINGS") != nullptr;
  std::string line = described;
  for (const StepPlan& plan : stages) line += text(" ", digest(plan));
  if (lists) {
    std::ofstream file(family + ".txt", families.count(family) > 0 ? std::ios::app : std::ios::out);
    file << line << "\n";
    for (const StepPlan& plan : stages) file << listing(plan);
  }
  families[family].push_back(line);
}

void add_deck(Families& families, const std::string& deck, int ranks, Purpose purpose,
              const std::vector<config::Override>& overrides) {
  const std::string path = std::string(OSTRAKON_SOURCE_DIR) + "/input_decks/" + deck + ".yaml";
  std::ifstream file(path, std::ios::binary);
  const config::Settings settings =
      config::read_settings({std::istreambuf_iterator<char>(file), {}}, path, overrides);
  Policy policy = config::policy_of(settings);
  // Nodes have eight ranks.
  const int group = settings.shard_group;
  policy.shard_group = group == mesh::world_group  ? ranks
                       : group == mesh::node_group ? std::min(ranks, 8)
                                                   : group;
  std::string described = text(ranks, " ranks, ", name(purpose));
  for (const auto& [key, value] : overrides) described += text(", ", key, "=", value);
  StepPlan plan;
  const std::string refused = refusal([&] {
    const auto model = train::describe(*train::make_decoder(settings), settings.optimizer);
    plan = build_step_plan(model, ranks, policy, purpose);
  });
  add(families, "deck " + deck, described + refused, {plan});
}

Families plan_families() {
  Families families;
  Random random(1000003);
  for (int i = 0; i < 6000; ++i) {
    const RandomPlan made =
        i % 6 == 0 ? random_plan(random, 4, 32, 3) : random_plan(random, 6, 12, 7);
    const std::string kind =
        made.purpose == Purpose::train ? name(made.policy.sharding) : "untrained";
    add(families, "random, " + kind, made.described, {made.plan});
  }
  for (int i = 0; i < 1500; ++i) {
    const RandomPipeline made = random_pipeline(random, {4, 4, 8, 4, 3, i % 4 == 0});
    const std::string kind = name(made.stages[0].schedule);
    add(families, "pipelines, " + kind, made.described, made.stages);
  }
  for (const char* deck : {"quickstart", "gpt2-124m"})
    for (int ranks : {1, 2, 4, 8, 64})
      for (const char* sharding : {"none", "optimizer", "gradients", "full"})
        for (const char* offload : {"none", "all"})
          add_deck(families, deck, ranks, Purpose::train,
                   {{"parallel.sharding", sharding}, {"memory.offload", offload}});
  for (const char* deck : {"quickstart", "gpt2-124m", "llama3-8b", "llama3-70b", "llama3-405b"})
    for (Purpose purpose : purposes)
      for (int ranks : {8, 512}) add_deck(families, deck, ranks, purpose, {});
  return families;
}

TEST(Listings, PlansAreThoseOfBefore) {
  std::string lines;
  for (const auto& [what, change] : small_plans()) {
    Small small;
    change(small);
    const auto stages =
        build_stage_plans(small.model, small.stages, small.ranks, small.policy, small.purpose);
    lines += text(what, ":\n");
    for (const StepPlan& plan : stages) {
      EXPECT_EQ(memory_refused(plan), "") << what;
      lines += listing(plan);
    }
    EXPECT_EQ(refused(stages), "") << what;
  }
  lines += "families, the plans in each, and their hash:\n";
  for (const auto& [family, its_lines] : plan_families()) {
    Hasher hasher;
    for (const std::string& line : its_lines) hasher.add(line);
    lines += text("  ", family, ": ", its_lines.size(), " ", format_hex(hasher.value()), "\n");
  }
  test::expect_lines_of("listings.txt", lines, "tests/plan");
}

// Every field that decides something changes the digest: some of each kind of action and buffer.
TEST(Listings, SeeEveryField) {
  Random random(1);
  const StepPlan plan = random_plan(random, 4, 4, 2).plan;
  const std::uint64_t before = digest(plan);
  const auto see = [&](const char* what, auto change) {
    StepPlan changed = plan;
    change(changed);
    EXPECT_NE(digest(changed), before) << what;
  };
  const Span other{Axis::replicate, 7, 5};
  using ActionChange = void (*)(Action&);
  const std::pair<const char*, ActionChange> of_action[] = {
      {"kind", [](Action& x) { x.kind = x.kind == Kind::release ? Kind::loss : Kind::release; }},
      {"stream",
       [](Action& x) { x.stream = x.stream == Stream::reduce ? Stream::gather : Stream::reduce; }},
      {"unit", [](Action& x) { ++x.unit; }},
      {"micro_batch", [](Action& x) { ++x.micro_batch; }},
      {"phase", [](Action& x) { ++x.phase; }},
      {"peer", [](Action& x) { ++x.peer; }},
      {"exchange",
       [](Action& x) {
         x.exchange =
             x.exchange == ExchangeKind::gather ? ExchangeKind::all_to_all : ExchangeKind::gather;
       }},
      {"span",
       [](Action& x) {
         x.span = {Axis::replicate, 7, 5};
       }},
      {"tree", [](Action& x) { ++x.tree; }},
      {"elements", [](Action& x) { x.elements += 64; }},
      {"element_bytes", [](Action& x) { x.element_bytes += 2; }},
      {"converts", [](Action& x) { x.converts ^= true; }},
      {"flats", [](Action& x) { ++x.flats.end; }},
      {"divided",
       [](Action& x) {
         x.divided.push({Axis::replicate, 7, 5});
       }},
      {"flops", [](Action& x) { x.flops += 1.0; }},
      {"adds_to",
       [](Action& x) {
         x.adds_to = x.adds_to == AddsTo::nothing ? AddsTo::partial_sum : AddsTo::nothing;
       }},
      {"may_be_empty", [](Action& x) { x.may_be_empty ^= true; }},
      {"empty_if_even", [](Action& x) { x.empty_if_even ^= true; }},
      {"waits", [](Action& x) { x.waits.push_back(0); }},
      {"uses", [](Action& x) {
         x.uses.push_back({Role::sums, 0, Access::read});
       }}};
  const std::pair<const char*, void (*)(Use&)> of_use[] = {
      {"buffer", [](Use& x) { ++x.buffer; }},
      {"role", [](Use& x) { x.role = x.role == Role::released ? Role::sums : Role::released; }},
      {"access",
       [](Use& x) { x.access = x.access == Access::read ? Access::write : Access::read; }}};
  for (std::size_t a = 0; a < plan.actions.size(); a += 5) {
    for (const auto& [what, change] : of_action)
      see(what, [&, change = change](StepPlan& p) { change(p.actions[a]); });
    if (plan.actions[a].uses.empty()) continue;
    for (const auto& [what, change] : of_use)
      see(what, [&, change = change](StepPlan& p) { change(p.actions[a].uses.back()); });
  }
  const std::pair<const char*, void (*)(Buffer&)> of_buffer[] = {
      {"name", [](Buffer& x) { x.name += "s"; }},
      {"category",
       [](Buffer& x) {
         x.category = x.category == Category::other ? Category::staging : Category::other;
       }},
      {"bytes", [](Buffer& x) { ++x.bytes; }},
      {"space", [](Buffer& x) { x.space = x.space == Space::host ? Space::device : Space::host; }},
      {"persistent", [](Buffer& x) { x.persistent ^= true; }},
      {"quantized", [](Buffer& x) { x.quantized ^= true; }},
      {"flats", [](Buffer& x) { ++x.flats.first; }},
      {"divided", [](Buffer& x) {
         x.divided.push({Axis::replicate, 7, 5});
       }}};
  for (std::size_t b = 0; b < plan.buffers.size(); b += 5)
    for (const auto& [what, change] : of_buffer)
      see(what, [&, change = change](StepPlan& p) { change(p.buffers[b]); });
  for (Layout Layouts::*layout : {&Layouts::masters, &Layouts::compute, &Layouts::gathered,
                                  &Layouts::gradient, &Layouts::update}) {
    see("divided", [&](StepPlan& p) { (p.layouts.*layout).divided.push(other); });
    see("element_bytes", [&](StepPlan& p) { ++(p.layouts.*layout).element_bytes; });
  }
  for (int PlannedUnit::*buffer :
       {&PlannedUnit::masters, &PlannedUnit::compute_copy, &PlannedUnit::first_moments,
        &PlannedUnit::second_moments, &PlannedUnit::gradients})
    see("state", [&](StepPlan& p) { ++(p.units.back().*buffer); });
}

}  // namespace
}  // namespace ostrakon::tests
