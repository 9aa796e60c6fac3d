// SPDX-License-Identifier: Apache-2.0
// ostrakon-plan --choose: the settings with which a step is fastest, and fits.
#include "show.hpp"

#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/base/shell_word.hpp>
#include <ostrakon/config/assignment.hpp>
#include <ostrakon/config/machine_checks.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/simulate/machine_costs.hpp>
#include <ostrakon/tune/recompute.hpp>

#include "../common/output_file.hpp"
#include "../common/program.hpp"

namespace ostrakon::apps::plan_program {
namespace {

using Json = nlohmann::ordered_json;
using tune::Chosen;

/// Tokens of a step on all ranks.
double tokens_of(const Chosen& one) {
  const config::TrainingSettings& training = one.settings.training;
  return static_cast<double>(training.global_batch_size * training.sequence_length);
}

/// How many times as fast as the deck a step is.
double speedup(const tune::Result& choice) {
  return choice.deck->prediction.step_seconds / choice.best.front().prediction.step_seconds;
}

/// The deck with what was chosen, and, unless it is written, with what was set besides.
std::string arguments_of(const tune::Result& choice, const Line& line) {
  if (!line.output.empty()) return shell_word(line.output);
  std::vector<std::string> settings;
  for (const auto& [key, value] : line.overrides) settings.push_back(key + "=" + value);
  const Chosen& best = choice.best.front();
  settings.insert(settings.end(), best.changes.begin(), best.changes.end());
  if (!best.settings.choose.empty()) settings.emplace_back("parallel.choose=");
  return shell_word(line.deck) + (settings.empty() ? "" : " " + config::set_options(settings));
}

std::string plan_command(const tune::Result& choice, const Line& line) {
  std::string command = "ostrakon-plan " + arguments_of(choice, line);
  for (const std::string& option : line.place) command += " " + shell_word(option);
  return command;
}

std::string train_command(const tune::Result& choice, const tune::Request& request,
                          const Line& line) {
  return text("mpiexec -n ", request.on.ranks, " ostrakon-train ", arguments_of(choice, line));
}

std::string place_text(const tune::Request& request) {
  return text(counted(request.on.ranks, "rank"), ", ", request.on.ranks_per_node, " on each node");
}

Json bytes_json(std::int64_t room) { return room < tune::any_bytes ? Json(room) : Json(); }

Json row_of(const Chosen& one) {
  return {{"set", one.changes},
          {"step_seconds", one.prediction.step_seconds},
          {"fastest_step_seconds", one.prediction.fastest},
          {"slowest_step_seconds", one.prediction.slowest},
          {"tokens_per_second", tokens_of(one) / one.prediction.step_seconds},
          {"mfu", one.prediction.mfu},
          {"arena_bytes", one.arenas.device},
          {"host_arena_bytes", one.arenas.host},
          {"bits_of_one_rank", one.bits_of_one_rank},
          {"fits", one.fits},
          {"factors", factors_json(one.prediction.factors)}};
}

void show_as_json(const tune::Result& choice, const tune::Request& request, const Line& line,
                  std::ostream& out) {
  Json rows = Json::array();
  for (const Chosen& one : choice.best) rows.push_back(row_of(one));
  out << Json{{"machine", request.on.machine.name},
              {"ranks", request.on.ranks},
              {"ranks_per_node", request.on.ranks_per_node},
              {"room_bytes", bytes_json(choice.room.device)},
              {"host_bytes", bytes_json(choice.room.host)},
              {"not_tried_as_bits_would_change", choice.left_out},
              {"bounded", choice.bounded},
              {"estimated", choice.estimated},
              {"planned", choice.planned},
              {"settings", rows},
              {"deck", choice.deck ? row_of(*choice.deck) : Json{{"error", choice.why_not_deck}}},
              {"times_as_fast_as_the_deck", choice.deck ? Json(speedup(choice)) : Json()},
              {"plan_command", plan_command(choice, line)},
              {"train_command", train_command(choice, request, line)}}
             .dump(2)
      << "\n";
}

std::string memory_text(const Chosen& one) {
  std::string memory = "arena of a rank " + format_bytes(one.arenas.device);
  if (one.settings.parallel.offload != plan::Offload::none ||
      one.settings.parallel.offload_activations)
    memory += ", " + format_bytes(one.arenas.host) + " of the host's memory";
  return memory + (one.bits_of_one_rank ? "" : ", sums not bitwise equal to 1 rank");
}

/// "1.83 times as fast as the deck as it stands: 25.6 s, arena of a rank 64 GiB"
std::string compared_to_deck(const tune::Result& choice) {
  if (!choice.deck) return "the deck as it stands can't be planned: " + choice.why_not_deck;
  const Chosen& deck = *choice.deck;
  const std::string takes = seconds_text(deck.prediction.step_seconds) + ", " + memory_text(deck);
  if (!deck.fits) return "the deck as it stands does not fit: " + takes;
  if (choice.best.front().changes.empty()) return "nothing that was tried is faster than the deck";
  return print("%.3f times as fast as the deck as it stands: ", speedup(choice)) + takes;
}

void show_result(const tune::Result& choice, const tune::Request& request, const Line& line,
                 std::ostream& out) {
  if (line.json) return show_as_json(choice, request, line, out);
  const Chosen& first = choice.best.front();
  const simulate::Prediction& best = first.prediction;
  out << request.on.machine.name << ": " << place_text(request) << ", ";
  if (choice.room.device < tune::any_bytes)
    out << format_bytes(choice.room.device) << " for the arena of each";
  else
    out << "arenas of any size";
  if (choice.room.host < tune::any_bytes)
    out << ", " << format_bytes(choice.room.host) << " of the host's memory";
  out << "\n\nthe fastest settings that were found: " << seconds_text(best.step_seconds)
      << " a step"
      << (best.fastest < best.slowest ? ", in 19 of 20 cases " + seconds_text(best.fastest) +
                                            " to " + seconds_text(best.slowest)
                                      : "")
      << "\n  " << compared_to_deck(choice) << "\n"
      << print("  %.6g tokens/s, MFU %.1f %%, ", tokens_of(first) / best.step_seconds,
               100.0 * best.mfu)
      << memory_text(first) << "\n  " << config::set_options(first.changes) << "\n";
  if (choice.best.size() > 1) out << "\nof other kinds\n";
  for (std::size_t i = 1; i < choice.best.size(); ++i) {
    const Chosen& one = choice.best[i];
    const std::string why = tune::why_slower(one.prediction, best);
    out << print("  %.1f %% slower, ",
                 100.0 * (one.prediction.step_seconds / best.step_seconds - 1.0))
        << seconds_text(one.prediction.step_seconds) << (why.empty() ? "" : ": " + why) << "; "
        << memory_text(one) << "\n    " << config::set_options(one.changes) << "\n";
  }
  if (!choice.left_out.empty()) out << "\nnot tried, as bits of results would change\n";
  for (const std::string& one : choice.left_out) out << "  " << one << "\n";
  out << "\n"
      << format_count(choice.bounded) << " settings were bounded, "
      << format_count(choice.estimated) << " estimated by shorter steps, "
      << format_count(choice.planned) << " planned and simulated\n\n"
      << "to see the step, and to train\n  " << plan_command(choice, line) << "\n  "
      << train_command(choice, request, line) << "\n";
}

std::string chosen_deck(const tune::Result& choice, const tune::Request& request,
                        const Line& line) {
  const std::filesystem::path path(line.output);
  std::error_code failure;
  const bool is_file =
      !std::filesystem::exists(path, failure) || std::filesystem::is_regular_file(path, failure);
  config::Settings settings = choice.best.front().settings;
  settings.choose.clear();
  settings = is_file ? config::with_paths_from(settings, path.parent_path().string())
                     : config::with_absolute_paths(settings);
  return text("# Chosen by ostrakon-plan --choose from ", printable(line.deck), " for ",
              place_text(request), ", of ", printable(request.on.machine.name),
              ":\n# a step takes ", seconds_text(choice.best.front().prediction.step_seconds),
              ". To see it, and to train:\n#   ", printable(plan_command(choice, line)), "\n#   ",
              printable(train_command(choice, request, line)), "\n", config::write_deck(settings));
}

/// `machine`: the file of one; empty: the rates of the command line. Of a deck that says what to
/// choose for, its own keys are kept.
tune::Request choose_request(const config::Settings& settings, const Line& line,
                             const std::string& machine) {
  tune::Request request;
  request.on.machine = machine.empty() ? simulate::machine_with(line.rates())
                                       : config::read_machine(read_file(machine), machine);
  request.on.ranks = line.ranks;
  const int of_node = ranks_of_machine(settings, line, request.on.machine);
  request.on.ranks_per_node = of_node > 0 ? std::min(of_node, line.ranks) : line.ranks;
  request.room = line.room;
  request.any_precision = line.any_precision;
  request.is_exhaustive = line.exhaustive;
  request.threads = static_cast<int>(allowed_cores().size());
  for (const config::Override& setting : line.overrides) request.kept.insert(setting.first);
  if (!settings.choose.empty()) request.kept.insert(settings.given.begin(), settings.given.end());
  return request;
}

}  // namespace

void show_choice(config::Settings settings, const Line& line) {
  require(line.stack.empty(), "--choose: with --stack ", printable(line.stack),
          "; settings are chosen for Ostrakon's own steps; expected one of both");
  const tune::Request request = choose_request(settings, line, line.machine);
  if (!line.machine.empty()) {
    warn(program_name, line.machine, config::keys_without_effect(request.on.machine));
    settings.processor = config::processor_of(request.on.machine);
  }
  const tune::Result choice = tune::choose(settings, request);
  show_result(choice, request, line, std::cout);
  std::cout << std::flush;
  if (!line.output.empty()) write_file(line.output, chosen_deck(choice, request, line));
}

namespace {

/// What a deck leaves open of what is computed again, for the memory that it names or a machine
/// has.
config::Settings with_recompute(config::Settings settings, const Line& line) {
  simulate::Machine machine;
  if (!line.machine.empty()) {
    machine = config::read_machine(read_file(line.machine), line.machine);
    settings.processor = config::processor_of(machine);
  }
  const int of_node = ranks_of_machine(settings, line, machine);
  const tune::RankCounts on{line.ranks, of_node > 0 ? std::min(of_node, line.ranks) : line.ranks};
  std::int64_t room = line.machine.empty() ? 0 : tune::room_of(machine);
  if (settings.memory_limit > 0)
    room = room > 0 ? std::min(room, settings.memory_limit) : settings.memory_limit;
  require(room > 0,
          "memory.activation_checkpointing = auto: chosen for the memory of a rank, which is not "
          "known here; expected --set memory.limit=BYTES, or --time with the file of a machine "
          "that has memory_gibibytes");
  require(line.sweep.empty(),
          "memory.activation_checkpointing = auto: --sweep takes settings as they are; expected "
          "another value");
  const tune::RecomputeChoice kept = tune::choose_recompute(
      settings, on, {room, tune::any_bytes}, static_cast<int>(allowed_cores().size()));
  if (!line.json)
    std::cout << "chosen for " << format_bytes(room)
              << " of memory: " << config::set_options(kept.changes) << "\n\n";
  return kept.settings;
}

}  // namespace

config::Settings with_choice(const config::Settings& settings, const Line& line) {
  if (settings.choose.empty())
    return settings.chooses_recompute ? with_recompute(settings, line) : settings;
  require(line.sweep.empty(), "parallel.choose = ", settings.choose,
          ": --sweep takes settings as they are; add --set parallel.choose=");
  const tune::Request request = choose_request(settings, line, settings.choose);
  config::Settings best = tune::choose(settings, request).best.front().settings;
  best.choose.clear();
  return best;
}

}  // namespace ostrakon::apps::plan_program
