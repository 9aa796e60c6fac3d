// SPDX-License-Identifier: Apache-2.0

// `export` and `import`: convert weights to Hugging Face's format and back. `reshard`: rewrites a
// checkpoint for another number of ranks.

#include <filesystem>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/checkpoint/adapters/adapted_source.hpp>
#include <ostrakon/checkpoint/adapters/peft_writer.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_tokenizer.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_writer.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/checkpoint/new_folder.hpp>
#include <ostrakon/checkpoint/open_parameters.hpp>
#include <ostrakon/checkpoint/reshard.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>

#include "../common/model_file.hpp"
#include "../common/output_file.hpp"
#include "../common/program.hpp"
#include "commands.hpp"

namespace ostrakon::apps::checkpoint_program {
namespace {

void require_another_file(const std::string& in, const std::string& out) {
  require(!are_same(in, out), "'", out, "' is the file to read");
}

/// Takes a size such as "5GB"; units are powers of 1000.
Value size(std::optional<std::int64_t>& to) {
  return {[&to](const std::string& value) {
    std::int64_t count = 0, unit = 1;
    const char* const end = value.data() + value.size();
    const auto [stopped, failure] = std::from_chars(value.data(), end, count);
    const std::string name(stopped, end);
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    for (const char* const known : {"B", "KB", "MB", "GB", "TB"}) {
      if (failure == std::errc() && count >= 1 && name == known && count <= most / unit) {
        to = count * unit;
        return "";
      }
      unit *= 1000;
    }
    return "a whole number and a unit, B, KB, MB, GB or TB (powers of 1000), such as 5GB";
  }};
}

/// Returns the token that begins and ends documents, if the tokenizer is known.
std::optional<std::int64_t> end_of_text(const std::string& tokenizer) {
  if (tokenizer != data::ByteTokenizer::name) return std::nullopt;
  return data::ByteTokenizer::end_of_text;
}

/// What export has written into a folder.
struct Exported {
  int tensor_files = 1;
  checkpoint::CopiedFiles copied;
};

/// Writes tensors, their config.json and what came with the weights into a folder.
Exported export_folder(const std::string& out, const ModelFile& model, std::int64_t shard_bytes,
                       const checkpoint::HuggingFaceOutput& output, const std::string& config) {
  checkpoint::NewFolder folder(out);
  Exported exported;
  exported.tensor_files = checkpoint::write_huggingface_shards(
      folder.partial(), model.settings.model, shard_bytes, output, *model.parameters);
  checkpoint::write_text_file(folder.partial() + "/config.json", "model configuration", config);
  const std::string source = checkpoint::source_folder_of(model.parameters->huggingface_config());
  if (!source.empty())
    exported.copied =
        checkpoint::copy_huggingface_companions(source, folder.partial(), model.tokenizer);
  folder.commit();
  return exported;
}

constexpr Named<DType> exported_dtypes[] = {{DType::fp32, "fp32"}, {DType::bf16, "bf16"}};

struct Export {
  DType dtype = DType::fp32;
  std::optional<std::int64_t> shard_bytes;
  bool averages = false, overwrite = false, merge = false, adapters = false;
};

/// Throws Error unless the options fit to whether the weights have adapters.
void require_adapters_said(const Export& line, const model::LoraSettings& lora,
                           const std::string& in) {
  require(!lora.exist() || line.merge != line.adapters, "'", in, "' has adapters, of rank ",
          lora.rank,
          "; expected either --adapters (them alone, as PEFT reads them) or --merge "
          "(a model without, to whose weights they are added)");
  require(lora.exist() || !(line.merge || line.adapters), "'", in,
          "' has no adapters; expected neither --adapters nor --merge");
  require(!line.adapters || !line.shard_bytes,
          "--shard-size with --adapters, which writes one "
          "file; expected --merge, or no --shard-size");
  require(!line.adapters || line.dtype == DType::fp32, "--dtype ", ostrakon::name(line.dtype),
          " with --adapters, which are fp32; expected fp32");
}

/// Writes adapters alone, as a folder of PEFT.
int export_adapters(const std::string& in, const std::string& out, const ModelFile& model,
                    const checkpoint::Family& family) {
  checkpoint::NewFolder folder(out);
  const config::Settings& settings = model.settings;
  const std::string source = checkpoint::source_folder_of(model.parameters->huggingface_config());
  checkpoint::write_peft(folder.partial(), family, settings.model,
                         source.empty() ? settings.checkpoint.initial_weights : source,
                         *model.parameters);
  folder.commit();
  std::cout << "wrote " << printable(out) << ", adapters of step " << format_count(model.step)
            << " of " << printable(in) << " as PEFT's of a " << family.model_type << ", rank "
            << settings.model.lora.rank << "\n";
  return 0;
}

int export_weights(const Export& line, const Given& given) {
  const std::string in = resolve_model_path(given.operands[0]), &out = given.operands[1];
  require_output("OUT", out);
  const bool is_file =
      !line.shard_bytes && std::filesystem::path(out).extension() == ".safetensors";
  require_another_file(in, out);
  if (is_file)
    require_free_name(out, line.overwrite);
  else
    require(!line.overwrite, "--overwrite replaces a file; OUT, '", out,
            "', is a folder, which must be new or empty");
  ModelFile model = open_with_deck(
      in, line.averages ? checkpoint::Weights::averages : checkpoint::Weights::parameters);
  const model::DecoderSettings adapted = model.settings.model;
  require_adapters_said(line, adapted.lora, in);
  require(!line.adapters || !is_file, "OUT, '", out,
          "', is a file; expected a new folder, as PEFT has two files");
  model.parameters->verify();
  model.settings.model.lora = {};
  const checkpoint::HuggingFaceModel described = {
      model.settings.model, model.settings.training.sequence_length, line.dtype,
      end_of_text(model.tokenizer), model.parameters->huggingface_config()};
  const checkpoint::Family& family = checkpoint::family_of(described);
  if (line.adapters) {
    model.settings.model = adapted;
    return export_adapters(in, out, model, family);
  }
  const std::string config = checkpoint::write_huggingface_config(described);
  const std::unique_ptr<checkpoint::ParameterSource> unmerged = std::move(model.parameters);
  model.parameters = std::make_unique<checkpoint::MergedSource>(*unmerged, adapted);
  const checkpoint::HuggingFaceOutput output = {
      &family,
      described.tokens,
      described.dtype,
      {{"tokenizer", model.tokenizer}, {"program", text(program, " ", version())}}};
  Exported exported;
  if (is_file)
    checkpoint::write_huggingface(out, model.settings.model, output, *model.parameters);
  else
    exported = export_folder(out, model, line.shard_bytes.value_or(5'000'000'000), output, config);
  std::cout << "wrote " << printable(out) << ", " << (line.averages ? "averages at " : "")
            << "step " << format_count(model.step) << " of " << printable(in) << " as "
            << family.model_type << " in " << ostrakon::name(line.dtype);
  if (is_file)
    std::cout << ": tensors alone; another OUT is a folder with its config.json\n";
  else
    std::cout << ", " << counted(exported.tensor_files, "file") << " and config.json\n";
  std::string copied;
  for (const std::string& name : exported.copied.names)
    copied += (copied.empty() ? "" : ", ") + name;
  if (!copied.empty()) std::cout << "copied " << copied << "\n";
  if (!exported.copied.note.empty())
    std::cout << "note: " << printable(exported.copied.note) << "\n";
  return 0;
}

struct Import {
  std::optional<std::string> deck, tokenizer, adapters;
  bool overwrite = false;
};

int import_weights(const Import& line, const Given& given) {
  const std::string in = resolve_model_path(given.operands[0]), &out = given.operands[1];
  require_output("OUT", out);
  require_another_file(in, out);
  require_free_name(out, line.overwrite);
  const bool described = single_model_kind(in) == FileKind::safetensors &&
                         !checkpoint::huggingface_config_next_to(in).empty();
  require(line.deck || described, "import needs --deck DECK: no config.json next to '", in,
          "' describes the model");
  config::Settings settings = settings_of_safetensors(in, line.deck, std::nullopt);
  if (line.adapters) {
    require(described, "--adapters reads them for a model in a folder of Hugging Face, and '", in,
            "' is none; expected one with config.json");
    const checkpoint::HuggingFaceConfig config =
        checkpoint::load_huggingface_config(checkpoint::huggingface_config_next_to(in));
    // Adapters that a deck describes are compared with the folder's as they are added.
    if (!settings.model.lora.exist())
      settings.model.lora =
          checkpoint::lora_of_peft(*line.adapters, *config.family, settings.model);
    settings.lora_initial = *line.adapters;
  }
  std::unique_ptr<checkpoint::ParameterSource> source = checkpoint::open_parameters(
      in, settings.model, settings.training.sequence_length,
      [&](const std::string& deck_of_it) { config::require_same_model(settings, deck_of_it, in); });
  add_initial_adapters(source, settings, in);
  settings.lora_initial.clear();  // OUT has the adapters
  const std::string said = source->tokenizer();
  const std::string theirs = said.empty() ? unknown_tokenizer : said;
  const std::string tokenizer = line.tokenizer.value_or(theirs);
  source->verify();
  const auto locks = lock_run_folders(out);
  checkpoint::WeightsWriter writer(out, config::write_deck(config::with_absolute_paths(settings)),
                                   0, tokenizer, source->huggingface_config());
  std::vector<float> values;
  for (const model::Parameter& p :
       checkpoint::parameters_of(settings.model, settings.training.sequence_length)) {
    values.resize(static_cast<std::size_t>(p.elements()));
    source->read(p.owner, p.name, p.shape, 0, p.elements(), values.data());
    writer.write(p.owner, p.name, p.shape, values.data());
  }
  writer.finish();
  if (!source->unchecked().empty()) std::cout << "note: " << printable(source->unchecked()) << "\n";
  if (tokenizer != theirs && theirs != unknown_tokenizer)
    std::cout << "note: " << printable(in) << " says the tokenizer " << printable(theirs)
              << ", --tokenizer another one\n";
  std::cout << "wrote " << printable(out) << ", tokenizer " << printable(tokenizer) << "\n";
  return 0;
}

struct Reshard {
  checkpoint::Division division;
  std::optional<int> ranks_per_node;
};

int reshard(const Reshard& line, const Given& given) {
  const std::string in = resolve_model_path(given.operands[0]), &out = given.operands[1];
  require_output("OUT", out);
  checkpoint::Division division = line.division;
  division.ranks_per_node = line.ranks_per_node.value_or(division.ranks);
  division.check();
  require(single_model_kind(in) == FileKind::checkpoint, "'", in, "' is no checkpoint");
  const auto locks = lock_run_folders(out);
  checkpoint::CheckpointReader reader(in);
  const checkpoint::Manifest manifest = checkpoint::reshard(reader, out, division);
  std::cout << "wrote " << printable(out) << ", step " << format_count(manifest.progress.step)
            << " of " << printable(in) << " as " << counted(division.ranks, "rank") << " hold it, "
            << format_bytes(manifest.bytes()) << " in "
            << counted(static_cast<std::int64_t>(manifest.files.size()), "file") << "\n";
  return 0;
}

constexpr const char* overwrite_help = "replace a file that has this name; else it is refused";

}  // namespace

Command export_command() {
  const auto line = std::make_shared<Export>();
  return {
      "export",
      "FILE OUT",
      "writes weights as safetensors with the names of Hugging Face's models: the type from which "
      "they were imported, or else one that fits the deck (docs/weights.md lists types). OUT is a "
      "new folder, with config.json and the files of the tokenizer that the weights came with; "
      "OUT.safetensors is one file of tensors alone",
      {{"--dtype", "fp32|bf16", choice(line->dtype, exported_dtypes), "dtype of OUT (fp32)"},
       {"--shard-size", "SIZE", size(line->shard_bytes),
        "of the folder's files, at most (5GB; 500MB; powers of 1000); there is an index where "
        "there are several"},
       {"--adapters", "", flag(line->adapters),
        "of a model with adapters: writes these alone, a folder as PEFT reads it"},
       {"--merge", "", flag(line->merge),
        "of a model with adapters: writes a model without, to whose weights they are added"},
       {"--ema", "", flag(line->averages),
        "of a checkpoint the averages that training.ema keeps, in place of the parameters"},
       {"--overwrite", "", flag(line->overwrite), overwrite_help}},
      [line](const Given& given) { return export_weights(*line, given); }};
}

Command import_command() {
  const auto line = std::make_shared<Import>();
  return {"import",
          "FILE OUT.h5",
          "writes weights as weights.h5",
          {{"--deck", "DECK", word(line->deck),
            "its section `model`, and sequence_length, describe the weights; compared with "
            "config.json next to FILE (default: config.json alone describes them)"},
           {"--tokenizer", "NAME", any_text(line->tokenizer),
            "tokenizer of the weights (default: that in FILE, or external)"},
           {"--adapters", "FOLDER", word(line->adapters),
            "adapters of the model in FILE, a folder of PEFT, which OUT.h5 has besides"},
           {"--overwrite", "", flag(line->overwrite), overwrite_help}},
          [line](const Given& given) { return import_weights(*line, given); }};
}

Command reshard_command() {
  const auto line = std::make_shared<Reshard>();
  return {"reshard",
          "CHECKPOINT OUT",
          "writes a checkpoint as N ranks would have saved it (not needed to resume on N ranks)",
          {{"--ranks", "N", required(integer(line->division.ranks, 0)),
            "ranks that hold equal parts of each array"},
           {"--files", "rank|node|single", choice(line->division.files, checkpoint::files_names),
            "which ranks write one file together; single: all (rank)"},
           {"--ranks-per-node", "M", integer(line->ranks_per_node, 0), "for --files node (N)"}},
          [line](const Given& given) { return reshard(*line, given); }};
}

}  // namespace ostrakon::apps::checkpoint_program
