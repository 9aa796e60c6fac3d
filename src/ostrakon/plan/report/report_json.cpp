// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/report/report_json.hpp>

#include <nlohmann/json.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/plan/report/json_row.hpp>
#include <ostream>

namespace ostrakon::plan {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const CategoryBytes& bytes) {
  Json json = Json::object();
  for (int c = 0; c < categories; ++c) json[category_key(static_cast<Category>(c))] = bytes[c];
  return json;
}

Json to_json(const Traffic& traffic) {
  Json levels = Json::array();
  for (const TrafficOfSpan& level : traffic.levels)
    levels.push_back({{"axis", name(level.span.axis)},
                      {"ranks", level.span.ranks},
                      {"stride", level.span.stride},
                      {"spans_nodes", level.spans_nodes},
                      {"bytes_sent", level.bytes_sent},
                      {"bytes_across_nodes", level.bytes_across_nodes}});
  return {{"ranks", traffic.ranks},
          {"levels", levels},
          {"spans_nodes", traffic.spans_nodes},
          {"collectives", traffic.collectives},
          {"messages", traffic.messages},
          {"bytes_sent", traffic.bytes_sent},
          {"bytes_across_nodes", traffic.bytes_across_nodes},
          {"smallest_array_bytes", traffic.array.smallest},
          {"median_array_bytes", traffic.array.median},
          {"largest_array_bytes", traffic.array.largest},
          {"smallest_message_bytes", traffic.message.smallest},
          {"median_message_bytes", traffic.message.median},
          {"largest_message_bytes", traffic.message.largest}};
}

Json to_json(const OverlapBytes& overlap) {
  return {{"bytes_sent_while_computing", overlap.bytes_while_computing},
          {"collectives_while_computing", overlap.collectives_while_computing},
          {"percent_of_bytes_while_computing", while_computing_percent(overlap)},
          {"bytes_sent_while_nothing_computes", overlap.bytes_while_nothing_computes},
          {"collectives_while_nothing_computes", overlap.collectives_while_nothing_computes},
          {"bytes_copied_while_computing", overlap.copied_while_computing},
          {"copies_while_computing", overlap.copies_while_computing},
          {"percent_of_copied_bytes_while_computing", copied_while_computing_percent(overlap)},
          {"bytes_copied_while_nothing_computes", overlap.copied_while_nothing_computes},
          {"copies_while_nothing_computes", overlap.copies_while_nothing_computes},
          {"most_units_in_flight", overlap.most_units_in_flight},
          {"most_bytes_in_flight", overlap.most_bytes_in_flight},
          {"most_units_gathered", overlap.most_units_gathered},
          {"most_bytes_gathered", overlap.most_bytes_gathered}};
}

Json to_json(const std::vector<Setting>& strategy) {
  Json json = Json::object();
  for (const Setting& setting : strategy) json[setting.key] = setting.value;
  return json;
}

Json memory_json(const MemoryPlan& memory, const MemoryUse& use) {
  Json units = Json::array();
  for (const UnitBytes& unit : use.peak_by_unit)
    units.push_back({{"unit", unit.unit == "-" ? Json() : Json(unit.unit)},
                     {"bytes", unit.bytes},
                     {"by_category", to_json(unit.by_category)}});
  return {{"arena_bytes", use.arena_bytes},
          {"lower_bound_bytes", use.lower_bound_bytes},
          {"persistent_bytes", use.persistent_bytes},
          {"state_bytes", use.state_bytes},
          {"peak_action", memory.peak_action},
          {"peak_action_name", use.peak_action},
          {"peak_by_category", to_json(use.peak_by_category)},
          {"peak_gradients",
           {{"in_flight", use.peak_gradients.in_flight},
            {"partial_sums", use.peak_gradients.partial_sums},
            {"sums", use.peak_gradients.sums}}},
          {"peak_by_unit", units}};
}

Json to_json(const Estimate& estimate) {
  const Timing& timing = estimate.timing;
  return {{"flops_per_second", estimate.rates.flops_per_second},
          {"bytes_per_second_inside_nodes", estimate.rates.inside_node_bytes_per_second},
          {"bytes_per_second_across_nodes", estimate.rates.across_node_bytes_per_second},
          {"bytes_per_second_copied", estimate.rates.copy_bytes_per_second},
          {"bytes_per_second_on_host", estimate.rates.host_bytes_per_second},
          {"step_seconds", timing.seconds},
          {"computing_seconds", timing.computing},
          {"exposed_communication_seconds", timing.exposed_communication},
          {"exposed_host_seconds", timing.exposed_host},
          {"exposed_copies_seconds", timing.exposed_copies},
          {"waiting_seconds", timing.waiting},
          {"tokens_per_second", estimate.tokens_per_second},
          {"mfu", estimate.mfu}};
}

Json to_json(const Spans& spans) {
  Json json = Json::array();
  for (const Span& span : spans)
    json.push_back({{"axis", name(span.axis)}, {"ranks", span.ranks}, {"stride", span.stride}});
  return json;
}

Json to_json(const Layout& layout) {
  return {{"divided_over", to_json(layout.divided)},
          {"space", name(layout.space)},
          {"element_bytes", layout.element_bytes}};
}

Json to_json(const Layouts& layouts) {
  return {{"masters", to_json(layouts.masters)},
          {"compute", to_json(layouts.compute)},
          {"gathered", to_json(layouts.gathered)},
          {"gradient", to_json(layouts.gradient)},
          {"update", to_json(layouts.update)}};
}

Json actions_json(const Report& report) {
  Json json = Json::object();
  for (int k = 0; k < kinds; ++k)
    if (report.actions[k] > 0)
      json[name(static_cast<Kind>(k))] = {{"actions", report.actions[k]},
                                          {"flops", report.flops[k]}};
  return json;
}

std::string buffer_line(const StepPlan& plan, const Buffer& buffer, std::int64_t offset) {
  std::vector<const FlatParameter*> flats;
  for (int f = buffer.flats.first; f < buffer.flats.end; ++f) flats.push_back(&plan.flats[f]);
  return JsonRow()
      .put("name", buffer.name)
      .put("category", category_key(buffer.category))
      .put("space", name(buffer.space))
      .put("offset", offset)
      .put("bytes", buffer.bytes)
      .put("persistent", buffer.persistent)
      .put("first_action", std::int64_t{buffer.first})
      .put("last_action", std::int64_t{buffer.last})
      .put_list("holds", flats,
                [](const FlatParameter* flat) {
                  return std::string(flat->trained ? "\"trained\"" : "\"frozen\"");
                })
      .put_list("divided_over", buffer.divided,
                [](const Span& span) {
                  return JsonRow()
                      .put("axis", name(span.axis))
                      .put("ranks", std::int64_t{span.ranks})
                      .put("stride", std::int64_t{span.stride})
                      .end();
                })
      .end();
}

std::string action_line(const StepPlan& plan, const Action& action, Group group) {
  const bool in_group = array_bytes(action) > 0 || action.kind == Kind::keep;
  return JsonRow()
      .put("name", plan.describe(action))
      .put("kind", name(action.kind))
      .put("stream", name(action.stream))
      .put_or_null("group", in_group, name(group))
      .put_or_null("group_ranks", in_group, std::int64_t{action.span.ranks})
      .put_or_null("group_stride", in_group, std::int64_t{action.span.stride})
      .put_or_null("unit", action.unit >= 0,
                   action.unit < 0 ? std::string() : plan.units[action.unit].name)
      .put_or_null("micro_batch", action.micro_batch >= 0, std::int64_t{action.micro_batch})
      .put("elements", action.elements)
      .put("array_bytes", array_bytes(action))
      .put("message_bytes", message_bytes(action))
      .put("copied_bytes", copied_bytes(action))
      .put("flops", action.flops)
      .put_list("uses", action.uses,
                [](const Use& use) {
                  return JsonRow()
                      .put("buffer", std::int64_t{use.buffer})
                      .put("role", name(use.role))
                      .put("access", name(use.access))
                      .end();
                })
      .put_list("waits", action.waits, [](int wait) { return std::to_string(wait); })
      .end();
}

}  // namespace

void write_report_json(std::ostream& out, const StepPlan& plan, const MemoryPlan& memory,
                       const MemoryPlan& host_memory, const Report& report,
                       const TimedStages& timed) {
  const Elements elements = count_elements(plan);
  Json head = {
      {"format", 3},
      {"purpose", name(plan.purpose)},
      {"hash", format_hex(plan.hash())},
      {"ranks", plan.grid.ranks()},
      {"nodes", report.nodes},
      {"ranks_per_node", report.ranks_per_node},
      {"node_windows", plan.grid.window > 0},
      {"tensor_ranks", plan.grid.tensor()},
      {"shard_group_ranks", plan.grid.shard()},
      {"replicas", plan.grid.replicas()},
      {"layouts", to_json(plan.layouts)},
      {"updates_early", updates_early(plan)},
      {"updates_optimistically", plan.layouts.updates_optimistically},
      {"accumulation", name(plan.layouts.accumulation)},
      {"computed_on", report.computed_on},
      {"strategy", to_json(report.strategy)},
      {"without_effect", without_effect(report.strategy)},
      {"sum_grain", plan.layouts.sum_grain},
      {"has_the_bits_of_one_rank", plan.has_the_bits_of_one_rank()},
      {"parameter_elements", elements.parameters},
      {"padded_elements", elements.padded},
      {"padded_frozen_elements", elements.padded_frozen},
      {"frozen_parameters", plan.frozen_count},
      {"micro_batches", plan.grid.micro_batches()},
      {"element_bytes", plan.layouts.gathered.element_bytes},
      {"memory", memory_json(memory, report.device)},
      {"host_memory", memory_json(host_memory, report.host)},
      {"traffic",
       {{"bytes_inside_nodes", report.bytes_inside_nodes},
        {"bytes_across_nodes", report.bytes_across_nodes},
        {"bytes_left_out_if_even", report.bytes_left_out_if_even},
        {"tensor_group", to_json(report.tensor)},
        {"shard_group", to_json(report.shard)},
        {"replicate_group", to_json(report.replicate)},
        {"kept_groups", to_json(report.kept)}}},
      {"copies",
       {{"bytes_to_device", report.bytes_to_device}, {"bytes_to_host", report.bytes_to_host}}},
      {"bytes_on_host", report.bytes_on_host},
      {"overlap", to_json(report.overlap)},
      {"flops", plan.flops()},
      {"actions_by_kind", actions_json(report)}};
  if (const ExpertCapacity capacity = expert_capacity(plan); capacity.rows > 0)
    head["expert_room"] = {{"ranks", capacity.ranks},
                           {"rows", capacity.rows},
                           {"rounds_if_even", capacity.rounds_if_even},
                           {"most_rounds", capacity.most_rounds}};
  if (report.estimate) head["estimate"] = to_json(*report.estimate);
  if (!report.stages.empty()) {
    Json stages = Json::array();
    for (const StageSummary& stage : report.stages) {
      Json one = {{"units", stage.units},
                  {"parameter_elements", stage.parameters},
                  {"units_that_stay_gathered", stage.stay_gathered},
                  {"backwards", stage.backwards},
                  {"backwards_deferred", stage.deferred},
                  {"arena_bytes", stage.arena_bytes},
                  {"host_arena_bytes", stage.host_arena_bytes},
                  {"bytes_to_other_stages", stage.bytes_sent},
                  {"flops", stage.flops}};
      if (report.estimate) one["waiting"] = stage.waiting;
      stages.push_back(one);
    }
    head["stage"] = plan.stage;
    head["stages"] = stages;
  }
  // The lists are written line by line: as one document, those of long plans would take gigabytes.
  out << without_end(head);
  write_list(out, "units", plan.units.size(), [&](std::size_t u) {
    const PlannedUnit& unit = plan.units[u];
    return JsonRow()
        .put("name", unit.name)
        .put("parameter_elements", unit.parameter_elements)
        .put("padded_elements", plan.padded(unit.flats))
        .put("padded_frozen_elements", plan.padded(plan.frozen(static_cast<int>(u))))
        .end();
  });
  write_list(out, "buffers", plan.buffers.size(), [&](std::size_t b) {
    const Buffer& buffer = plan.buffers[b];
    return buffer_line(plan, buffer,
                       (buffer.space == Space::host ? host_memory : memory).offsets[b]);
  });
  const std::vector<Group> group_of_action = find_groups(plan);
  write_list(out, "actions", plan.actions.size(),
             [&](std::size_t a) { return action_line(plan, plan.actions[a], group_of_action[a]); });
  if (!timed.plans.empty()) write_timelines(out, timed);
  out << "\n}\n";
}

}  // namespace ostrakon::plan
