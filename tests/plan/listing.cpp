// SPDX-License-Identifier: Apache-2.0
#include "plan/listing.hpp"

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <random>

#include "plan/random_plans.hpp"

namespace ostrakon::tests {
namespace {

using namespace plan;

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string words(const Spans& spans) {
  std::string words;
  for (const Span& span : spans)
    words += text(" ", name(span.axis), ":", span.ranks, "/", span.stride);
  return words.empty() ? " whole" : words;
}

std::string words(FlatRange flats) { return text(" [", flats.first, ", ", flats.end, ")"); }

std::string words(const Layout& layout) {
  return text(words(layout.divided), " ", name(layout.space), " ", layout.element_bytes, "\n");
}

std::string line_of(const Buffer& buffer) {
  return text("buffer ", buffer.name, ": ", name(buffer.category), " ", name(buffer.space), " ",
              buffer.bytes, " bytes", buffer.persistent ? " persistent" : "", " from ",
              buffer.first, " to ", buffer.last, words(buffer.flats), words(buffer.divided), "\n");
}

std::string line_of(const Action& action) {
  std::string line =
      text(name(action.kind), "/", name(action.stream), " unit ", action.unit, " micro-batch ",
           action.micro_batch, " over", words(Spans{action.span}), " ", action.elements, " x ",
           action.element_bytes, action.tree > 0 ? text(" trees over ", action.tree) : "",
           action.converts ? " converts" : "", words(action.flats), words(action.divided), " ",
           number(action.flops), " flops", action.gradients_opened ? " adds" : "",
           action.may_be_empty ? " may be empty" : "",
           action.empty_if_even ? ", is if routing is even" : "", ":");
  for (const Use& use : action.uses)
    line += text(" ", name(use.role), "=", use.buffer, "/", name(use.access));
  line += " after";
  for (int wait : action.waits) line += text(" ", wait);
  return line + "\n";
}

std::string line_of(const PlannedUnit& unit) {
  std::string line =
      text("unit ", unit.name, ": ", unit.parameter_elements, words(unit.flats), " masters ",
           unit.masters, " working ", unit.working, " moments ", unit.first_moments, " ",
           unit.second_moments, " gradients ", unit.gradients);
  for (const WholeMatrix& matrix : unit.whole_matrices)
    line += text(" [", matrix.offset, ", ", matrix.end(), ")");
  return line + "\n";
}

/// Leaves that ranks work on: the corners, where there are many.
std::string leaves_of(const StepPlan& plan) {
  const Grid& grid = plan.grid;
  const auto is_listed = [](std::int64_t i, std::int64_t count) { return i < 4 || i == count - 1; };
  std::string line = "leaves";
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    if (!is_listed(grid.place(rank, Axis::shard), grid.shard()) ||
        !is_listed(grid.place(rank, Axis::replicate), grid.replicas()))
      continue;
    for (std::int64_t micro_batch = 0; micro_batch < grid.micro_batches(); ++micro_batch)
      if (is_listed(micro_batch, grid.micro_batches()))
        line += text(" ", plan.leaf(rank, micro_batch));
  }
  return line + "\n";
}

std::string head_of(const StepPlan& plan) {
  const Grid& grid = plan.grid;
  const Layouts& layouts = plan.layouts;
  std::string head =
      text(name(plan.purpose), " on ", grid.shard(), " x ", grid.replicas(), " ranks, ",
           grid.micro_batches(), " micro-batches, sums ", name(layouts.accumulation),
           layouts.sum_grain > 0 ? text(" in trees over ", layouts.sum_grain) : "",
           plan.has_the_bits_of_one_rank() ? " exact" : "", ", frozen ", plan.frozen_count, "\n");
  head += text("masters", words(layouts.masters), "compute", words(layouts.compute), "gathered",
               words(layouts.gathered), "gradient", words(layouts.gradient), "update",
               words(layouts.update));
  for (const FlatParameter& flat : plan.flats)
    head +=
        text("flat parameter of unit ", flat.unit,
             flat.trained ? ", trained: " : ", frozen: ", flat.elements, " as ", flat.padded, "\n");
  for (const PlannedUnit& unit : plan.units) head += line_of(unit);
  return head + leaves_of(plan) +
         text("sent ", plan.bytes_sent(), "\nsums ", plan.sums, ", checkpoint ", plan.checkpoint,
              "\n");
}

ListedPlan random_plan(int seed, bool on_nodes, bool has_grain) {
  const auto make = [=] {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed) + 1000003);
    const auto below = [&](std::uint64_t count) { return static_cast<int>(random() % count); };
    const int sizes[] = {1, 2, 3, 4, 6, 8, 12}, more[] = {4, 6, 8, 12, 16, 24, 32};
    const int ranks = on_nodes ? more[below(7)] : sizes[below(7)];
    ModelDescription model = make_model(below(7), below(2) == 0, static_cast<std::uint64_t>(seed));
    if (below(4) > 0) vary(random, model);
    // Units without parameters, and a model of one unit.
    if (below(8) == 0 && model.units.size() > 2) {
      UnitDescription& unit = model.units[1];
      unit.parameter_elements = unit.frozen_elements = unit.frozen_count = 0;
      unit.whole_matrices.clear();
      unit.backward_reads_parameters = false;
    }
    if (below(16) == 0 && model.units.back().tied_to < 0)
      model.units.erase(model.units.begin(), model.units.end() - 1);
    Policy policy = random_policy(random, model, ranks, std::int64_t{ranks} * (1 + below(7)));
    if (below(4) > 0) vary(random, model, policy);
    if (has_grain) add_grain(random, ranks, policy);
    if (on_nodes) place_on_nodes(random, ranks, policy);
    const int chosen = below(10);
    const Purpose purpose = chosen < 7                 ? Purpose::train
                            : chosen == 7              ? Purpose::evaluate
                            : chosen == 8 || ranks > 1 ? Purpose::export_parameters
                                                       : Purpose::decode;
    return build_step_plan(model, ranks, policy, purpose);
  };
  return {text("random ", seed, on_nodes ? " on nodes" : "", has_grain ? ", with a grain" : ""),
          make};
}

ListedPlan plan_of_deck(const std::string& folder, const std::string& deck, int ranks,
                        const std::vector<config::Override>& overrides, Purpose purpose) {
  std::string plan = text(deck, " on ", ranks, ", ", name(purpose));
  for (const auto& [key, value] : overrides) plan += text(", ", key, "=", value);
  const auto make = [=] {
    const std::string path = folder + "/" + deck + ".yaml";
    std::ifstream file(path, std::ios::binary);
    require(file.is_open(), path, ": can't be read");
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    const config::Settings settings = config::read_settings(content, path, overrides);
    Policy policy = config::policy_of(settings);
    // Nodes have eight ranks.
    const int group = settings.shard_group;
    policy.shard_group = group == mesh::world_group  ? ranks
                         : group == mesh::node_group ? std::min(ranks, 8)
                                                     : group;
    const ModelDescription model =
        train::describe(*train::make_decoder(settings), settings.optimizer);
    return build_step_plan(model, ranks, policy, purpose);
  };
  return {plan, make};
}

}  // namespace

std::string listing(const StepPlan& plan) {
  std::string lines = head_of(plan);
  for (const Buffer& buffer : plan.buffers) lines += line_of(buffer);
  for (const Action& action : plan.actions) lines += line_of(action);
  return lines;
}

std::string listing(const ListedPlan& plan) {
  try {
    return listing(plan.make());
  } catch (const Error& error) {
    return text("error: ", error.what(), "\n");
  }
}

std::vector<ListedPlan> listed_plans(const std::string& decks) {
  std::vector<ListedPlan> plans;
  constexpr int random_plans = 6144;
  for (int seed = 0; seed < random_plans; ++seed) plans.push_back(random_plan(seed, false, false));
  constexpr int plans_on_nodes = 1024;
  for (int seed = 0; seed < plans_on_nodes; ++seed)
    plans.push_back(random_plan(seed, true, seed % 4 == 0));
  const Purpose run[] = {Purpose::train, Purpose::evaluate, Purpose::export_parameters};
  for (const char* deck : {"quickstart", "gpt2-124m"})
    for (int ranks : {1, 2, 4, 8, 64})
      for (const char* sharding : {"none", "optimizer", "gradients", "full"})
        for (const char* offload : {"none", "all"})
          plans.push_back(plan_of_deck(
              decks, deck, ranks, {{"parallel.sharding", sharding}, {"memory.offload", offload}},
              Purpose::train));
  for (const char* deck : {"quickstart", "gpt2-124m", "llama3-8b", "llama3-70b", "llama3-405b"})
    for (Purpose purpose : run)
      for (int ranks : {8, 512}) plans.push_back(plan_of_deck(decks, deck, ranks, {}, purpose));
  constexpr int plans_with_grain = 2048;
  for (int seed = 0; seed < plans_with_grain; ++seed)
    plans.push_back(random_plan(seed, false, true));
  return plans;
}

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

std::vector<std::string> listing_hashes(const std::vector<ListedPlan>& plans) {
  std::vector<std::string> lines;
  for (std::size_t first = 0; first < plans.size(); first += plans_a_line) {
    std::string run;
    for (std::size_t p = first; p < std::min(first + plans_a_line, plans.size()); ++p)
      run += listing(plans[p]);
    char hash[20];
    std::snprintf(hash, sizeof hash, "%016" PRIx64, hash_of(run));
    lines.push_back(text(hash, " ", plans[first].name));
  }
  return lines;
}

}  // namespace ostrakon::tests
