// SPDX-License-Identifier: Apache-2.0

// `inspect` and `verify`: show the content of a file, a checkpoint or a folder of checkpoints, and
// check that it is undamaged.

#include <array>
#include <filesystem>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <ostrakon/checkpoint/latest.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <system_error>

#include "../common/model_file.hpp"
#include "commands.hpp"

namespace ostrakon::apps::checkpoint_program {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointReader;
using checkpoint::FileEntry;
using checkpoint::Folder;
using checkpoint::Manifest;
using checkpoint::SafetensorsReader;
using checkpoint::State;
using checkpoint::WeightsReader;

// --- inspect -------------------------------------------------------------------------------------

/// What is said of a file, in order.
using Facts = std::vector<std::pair<std::string, std::string>>;

void show(const std::string& path, const Facts& facts) {
  std::cout << printable(path) << "\n";
  for (const auto& [name, value] : facts)
    std::cout << print(value.empty() ? "  %s" : "  %-12s", printable(name).c_str())
              << printable(value) << "\n";
  std::cout << "\n";
}

void inspect_weights(const std::string& path) {
  const WeightsReader weights(path);
  Table table;
  std::int64_t elements = 0;
  const auto parameters = weights.parameters();
  for (const WeightsReader::Entry& entry : parameters) {
    table.add({entry.unit + "." + entry.parameter, hdf5::shape_text(entry.shape), "fp32"});
    elements += elements_of(entry.shape);
  }
  Facts facts = {{"format", "ostrakon-weights 1"},
                 {"step", format_count(weights.step())},
                 {"tokenizer", weights.tokenizer()}};
  if (const std::string config = weights.huggingface_config(); !config.empty())
    facts.emplace_back("began as",
                       text(checkpoint::parse_huggingface_config(config, path).family->model_type,
                            " of Hugging Face"));
  facts.emplace_back("parameters",
                     text(format_count(elements), " in ", parameters.size(), " arrays"));
  show(path, facts);
  table.print();
}

void inspect_safetensors(const std::string& path) {
  const SafetensorsReader file(path);
  Table table;
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    table.add({name, hdf5::shape_text(tensor.shape), tensor.dtype});
    elements += tensor.elements();
  }
  Facts facts = {{"format", "safetensors"}};
  for (const auto& [key, value] : file.metadata()) facts.emplace_back(key + ": " + value, "");
  facts.emplace_back("elements",
                     text(format_count(elements), " in ", file.tensors().size(), " tensors"));
  show(path, facts);
  table.print();
}

std::string name_of(const Folder::Entry& entry) { return fs::path(entry.path).filename().string(); }

/// The problem of a checkpoint, if there is one.
struct Problem {
  std::string what;
  bool is_damage = false;  ///< false: it can't be read at the moment

  std::string words() const { return (is_damage ? "damaged: " : "unreadable: ") + printable(what); }
};

std::vector<std::string> row_of(const Folder::Entry& entry, bool is_latest) {
  const std::string name = name_of(entry), step = format_count(entry.step);
  const auto bad = [&](const Problem& problem) {
    return std::vector<std::string>{name, step, "", "", "", "", problem.words()};
  };
  if (!entry.problem.empty()) return bad({entry.problem, !entry.is_unreadable});
  try {
    const Manifest manifest = CheckpointReader(entry.path).manifest();
    return {name,
            step,
            format_count(entry.sequence),
            format_bytes(manifest.bytes()),
            format_count(manifest.ranks),
            text(manifest.files.size()),
            text(is_latest ? "latest" : "", is_latest && entry.is_renamed ? ", " : "",
                 entry.is_renamed ? "renamed" : "")};
  } catch (const Error& error) {  // a run may remove it meanwhile
    return bad({error.what(), false});
  }
}

bool inspect_checkpoints(const std::string& path) {
  Table table;
  table.add({"", "step", "sequence", "bytes", "ranks", "files", ""});
  const fs::path latest =
      checkpoint::follow_latest((fs::path(path) / checkpoint::latest_name).string()).path;
  std::error_code none;
  for (const Folder::Entry& entry : Folder(path).list(Folder::Unreadable::tell))
    table.add(row_of(entry, fs::equivalent(entry.path, latest, none)));
  std::cout << printable(path) << "\n";
  table.print();
  return true;
}

/// Lists the arrays of a parameter: "parameters fp32, first_moment bf16".
std::string numbers_of(const CheckpointReader& reader, int parameter) {
  std::string list;
  for (const State state : checkpoint::all_states) {
    if (!reader.has(state, parameter)) continue;
    const char* const dtype = ostrakon::name(reader.manifest().dtypes[static_cast<int>(state)]);
    list += (list.empty() ? "" : ", ") + text(checkpoint::name(state), " ", dtype);
  }
  return list;
}

void add_progress(const checkpoint::Progress& progress, Facts& facts) {
  facts.insert(facts.end(), {{"updates", format_count(progress.updates)},
                             {"samples", format_count(progress.samples)},
                             {"seed", text(progress.seed)},
                             {"loss scale", text(progress.loss_scale, ", for ",
                                                 format_count(progress.good_steps), " good steps")},
                             {"skipped", format_count(progress.skipped_in_a_row) + " in a row"}});
  if (progress.audited_step > 0)
    facts.emplace_back("audited", "step " + format_count(progress.audited_step));
  if (!progress.outliers) return;
  const auto& outliers = *progress.outliers;
  facts.emplace_back("outliers", text("after ", format_count(outliers.steps), " steps: loss ",
                                      outliers.loss_mean, " (variance ", outliers.loss_variance,
                                      "), gradient norm ", outliers.gradient_norm_mean,
                                      " (variance ", outliers.gradient_norm_variance, ")"));
}

void inspect_checkpoint(const std::string& path) {
  const CheckpointReader reader(path);
  const Manifest& manifest = reader.manifest();
  Table files, parameters;
  for (const FileEntry& file : manifest.files)
    files.add({file.name, format_bytes(file.bytes), text(file.pieces.size(), " pieces")});
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    const checkpoint::ParameterEntry& entry = manifest.parameters[i];
    parameters.add({entry.owner + "." + entry.name, hdf5::shape_text(entry.shape),
                    numbers_of(reader, static_cast<int>(i)) + (entry.frozen ? ", frozen" : "")});
    elements += entry.elements();
  }
  Facts facts = {{"format", "checkpoint of " + manifest.program},
                 {"step", format_count(manifest.progress.step)},
                 {"sequence", format_count(manifest.sequence)},
                 {"ranks", format_count(manifest.ranks)},
                 {"optimizer", manifest.optimizer},
                 {"tokenizer", manifest.tokenizer},
                 {"plan", format_hex(manifest.plan)}};
  add_progress(manifest.progress, facts);
  facts.emplace_back("parameters",
                     text(format_count(elements), " in ", manifest.parameters.size(), " arrays"));
  facts.emplace_back("bytes",
                     text(format_bytes(manifest.bytes()), " in ", manifest.files.size(), " files"));
  show(path, facts);
  files.print();
  std::cout << "\n";
  parameters.print();
}

// --- verify --------------------------------------------------------------------------------------

void verify_safetensors(const std::string& path) {
  const SafetensorsReader file(path);
  std::cout << printable(path) << " is well formed: " << file.tensors().size()
            << " tensors (the format has no checksums)\n";
}

void verify_weights(const std::string& path) {
  WeightsReader weights(path);
  weights.verify();
  const auto parameters = weights.parameters();
  const config::Settings settings =
      config::read_settings(weights.deck(), path + " (its deck)", {}, config::DeckUse::model);
  const auto expected =
      checkpoint::parameters_of(settings.model, settings.training.sequence_length);
  for (const model::Parameter& parameter : expected) {
    float ignored = 0.0f;
    weights.read(parameter.owner, parameter.name, parameter.shape, 0, 1, &ignored);
  }
  require(parameters.size() == expected.size(), "'", path, "' has ", parameters.size(),
          " parameters; its deck describes ", expected.size());
  std::cout << printable(path) << " is sound: " << parameters.size()
            << " parameters of its deck's model, each with its checksum\n";
}

/// Reads and checks all bytes of a checkpoint. Returns its manifest.
Manifest read_whole(const std::string& path) {
  CheckpointReader reader(path);
  reader.verify();
  return reader.manifest();
}

void verify_checkpoint(const std::string& path) {
  const Manifest manifest = read_whole(path);
  std::cout << printable(path) << " is sound: step " << format_count(manifest.progress.step) << ", "
            << format_bytes(manifest.bytes()) << " in " << manifest.files.size()
            << " files, each byte with its checksum\n";
}

Problem problem_of(const Folder::Entry& entry) {
  if (!entry.problem.empty()) return {entry.problem, !entry.is_unreadable};
  try {
    read_whole(entry.path);
  } catch (const DamagedError& error) {
    return {error.what(), true};
  } catch (const Error& error) {
    return {error.what(), false};
  }
  return {};
}

bool verify_checkpoints(const std::string& path) {
  const std::vector<Folder::Entry> entries = Folder(path).list(Folder::Unreadable::tell);
  std::size_t damaged = 0, unreadable = 0;
  for (const Folder::Entry& entry : entries) {
    const Problem problem = problem_of(entry);
    if (!problem.what.empty()) ++(problem.is_damage ? damaged : unreadable);
    std::cout << "  " << printable(name_of(entry)) << "  "
              << (problem.what.empty() ? "good" : problem.words()) << std::endl;
  }
  std::cout << entries.size() - damaged - unreadable << " good, " << damaged << " damaged";
  if (unreadable > 0) std::cout << ", " << unreadable << " unreadable";
  std::cout << "\n";
  return damaged + unreadable == 0;
}

using ShowFile = void (*)(const std::string& path);

/// `of_kinds`: for weights, a checkpoint and safetensors.
bool look(const Given& given, const std::array<ShowFile, 3>& of_kinds,
          bool (*of_folder)(const std::string& path)) {
  const std::string path = resolve_model_path(given.operands[0]);
  const FileKind kind = kind_of(path);
  if (kind == FileKind::checkpoints) return of_folder(path);
  of_kinds[kind == FileKind::weights ? 0 : kind == FileKind::checkpoint ? 1 : 2](path);
  return true;
}

}  // namespace

Command inspect_command() {
  return {"inspect",
          "FILE",
          "prints what a file holds: parameters, shapes, types; of a checkpoint also how far the "
          "run was, files, ranks and optimizer; of a folder of checkpoints a table of them",
          {},
          [](const Given& given) {
            look(given, {inspect_weights, inspect_checkpoint, inspect_safetensors},
                 inspect_checkpoints);
            return 0;
          }};
}

Command verify_command() {
  return {"verify",
          "FILE",
          "reads all of a file: each checksum of weights.h5 and checkpoints; the form of "
          "safetensors, which have none",
          {},
          [](const Given& given) {
            return look(given, {verify_weights, verify_checkpoint, verify_safetensors},
                        verify_checkpoints)
                       ? 0
                       : 1;
          }};
}

}  // namespace ostrakon::apps::checkpoint_program
