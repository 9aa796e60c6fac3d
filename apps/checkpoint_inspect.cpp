// SPDX-License-Identifier: Apache-2.0

// `inspect` and `verify`: show the content of a file, a checkpoint or a folder of checkpoints, and
// check that it is undamaged.

#include <filesystem>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <ostrakon/checkpoint/latest.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <ostrakon/config/deck.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "checkpoint_commands.hpp"
#include "model_file.hpp"

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

/// Describes the Hugging Face model that a model began as, if any.
std::string origin_line(const std::string& config, const std::string& path) {
  if (config.empty()) return "";
  const auto family = checkpoint::parse_huggingface_config(config, path).family;
  return text("  began as    ", checkpoint::model_type(family), " of Hugging Face\n");
}

void inspect_weights(const std::string& path) {
  const WeightsReader weights(path);
  Table table;
  std::int64_t elements = 0;
  const auto parameters = weights.parameters();
  for (const WeightsReader::Entry& entry : parameters) {
    table.add(
        {printable(entry.unit + "." + entry.parameter), hdf5::shape_text(entry.shape), "fp32"});
    elements += elements_of(entry.shape);
  }
  std::cout << printable(path) << "\n  format      ostrakon-weights 1\n  step        "
            << format_count(weights.step()) << "\n  tokenizer   " << printable(weights.tokenizer())
            << "\n"
            << origin_line(weights.huggingface_config(), path) << "  parameters  "
            << format_count(elements) << " in " << parameters.size() << " arrays\n\n";
  table.print();
}

void inspect_safetensors(const std::string& path) {
  const SafetensorsReader file(path);
  Table table;
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    table.add({printable(name), hdf5::shape_text(tensor.shape), tensor.dtype});
    elements += tensor.elements();
  }
  std::cout << printable(path) << "\n  format      safetensors\n";
  for (const auto& [key, value] : file.metadata())
    std::cout << "  " << printable(key) << ": " << printable(value) << "\n";
  std::cout << "  elements    " << format_count(elements) << " in " << file.tensors().size()
            << " tensors\n\n";
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

void inspect_checkpoints(const std::string& path) {
  Table table;
  table.add({"", "step", "sequence", "bytes", "ranks", "files", ""});
  const fs::path latest =
      checkpoint::follow_latest((fs::path(path) / checkpoint::latest_name).string()).path;
  std::error_code none;
  for (const Folder::Entry& entry : Folder(path).list(Folder::Unreadable::tell))
    table.add(row_of(entry, fs::equivalent(entry.path, latest, none)));
  std::cout << printable(path) << "\n";
  table.print();
}

/// Lists the arrays of a parameter: "parameters fp32, first_moment bf16".
std::string numbers_of(const CheckpointReader& reader, int parameter) {
  std::string list;
  for (const State state : all_states) {
    if (!reader.has(state, parameter)) continue;
    const char* const dtype = ostrakon::name(reader.manifest().dtypes[static_cast<int>(state)]);
    list += (list.empty() ? "" : ", ") + text(checkpoint::name(state), " ", dtype);
  }
  return list;
}

void print_progress(const checkpoint::Progress& progress) {
  std::cout << "  updates     " << format_count(progress.updates) << "\n  samples     "
            << format_count(progress.samples) << "\n  seed        " << progress.seed
            << "\n  loss scale  " << progress.loss_scale << ", for "
            << format_count(progress.good_steps) << " good steps\n  skipped     "
            << format_count(progress.skipped_in_a_row) << " in a row\n";
  if (!progress.outliers) return;
  const auto& outliers = *progress.outliers;
  std::cout << "  outliers    after " << format_count(outliers.steps) << " steps: loss "
            << outliers.loss_mean << " (variance " << outliers.loss_variance << "), gradient norm "
            << outliers.gradient_norm_mean << " (variance " << outliers.gradient_norm_variance
            << ")\n";
}

void inspect_checkpoint(const std::string& path) {
  const CheckpointReader reader(path);
  const Manifest& manifest = reader.manifest();
  Table files, parameters;
  for (const FileEntry& file : manifest.files)
    files.add(
        {printable(file.name), format_bytes(file.bytes), text(file.pieces.size(), " pieces")});
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    const checkpoint::ParameterEntry& entry = manifest.parameters[i];
    parameters.add({printable(entry.owner + "." + entry.name), hdf5::shape_text(entry.shape),
                    numbers_of(reader, static_cast<int>(i)) + (entry.frozen ? ", frozen" : "")});
    elements += entry.elements();
  }
  std::cout << printable(path) << "\n  format      checkpoint of " << printable(manifest.program)
            << "\n  step        " << format_count(manifest.progress.step) << "\n  sequence    "
            << format_count(manifest.sequence) << "\n  ranks       " << format_count(manifest.ranks)
            << "\n  optimizer   " << printable(manifest.optimizer) << "\n  tokenizer   "
            << printable(manifest.tokenizer) << "\n  plan        " << format_hex(manifest.plan)
            << "\n";
  print_progress(manifest.progress);
  std::cout << "  parameters  " << format_count(elements) << " in " << manifest.parameters.size()
            << " arrays\n  bytes       " << format_bytes(manifest.bytes()) << " in "
            << manifest.files.size() << " files\n\n";
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

}  // namespace

int inspect(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv, {});
  const std::string path = resolve_model_path(arguments.one_file("inspect", "file"));
  switch (kind_of(path)) {
    case FileKind::weights:
      inspect_weights(path);
      break;
    case FileKind::checkpoint:
      inspect_checkpoint(path);
      break;
    case FileKind::checkpoints:
      inspect_checkpoints(path);
      break;
    case FileKind::safetensors:
      inspect_safetensors(path);
      break;
  }
  return 0;
}

int verify(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv, {});
  const std::string path = resolve_model_path(arguments.one_file("verify", "file"));
  switch (kind_of(path)) {
    case FileKind::weights:
      verify_weights(path);
      break;
    case FileKind::checkpoint:
      verify_checkpoint(path);
      break;
    case FileKind::checkpoints:
      return verify_checkpoints(path) ? 0 : 1;
    case FileKind::safetensors:
      verify_safetensors(path);
      break;
  }
  return 0;
}

}  // namespace ostrakon::apps::checkpoint_program
