// SPDX-License-Identifier: Apache-2.0

// `export` and `import`: convert weights to Hugging Face's format and back.

#include <charconv>
#include <filesystem>
#include <iostream>
#include <limits>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_writer.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/checkpoint/new_folder.hpp>
#include <ostrakon/checkpoint/open_parameters.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <string>
#include <vector>

#include "checkpoint_commands.hpp"
#include "model_file.hpp"
#include "output_file.hpp"
#include "run_in_use.hpp"

namespace ostrakon::apps::checkpoint_program {
namespace {

void require_another_file(const std::string& in, const std::string& out) {
  require(!are_same(in, out), "'", out, "' is the file to read");
}

/// Returns a size such as "5GB" in bytes; units are powers of 1000.
std::int64_t read_size(const std::string& size) {
  struct Unit {
    const char* name;
    std::int64_t bytes;
  };
  constexpr Unit units[] = {
      {"B", 1}, {"KB", 1'000}, {"MB", 1'000'000}, {"GB", 1'000'000'000}, {"TB", 1'000'000'000'000}};
  std::int64_t count = 0;
  const char* const end = size.data() + size.size();
  const auto [stopped, failure] = std::from_chars(size.data(), end, count);
  for (const Unit& unit : units) {
    if (failure != std::errc() || count < 1 || std::string(stopped, end) != unit.name) continue;
    if (count > std::numeric_limits<std::int64_t>::max() / unit.bytes) break;
    return count * unit.bytes;
  }
  throw Error(text("--shard-size is '", size, "'; expected a whole number and a unit, B, KB, MB, ",
                   "GB or TB (powers of 1000), such as 5GB"));
}

/// Returns the token that begins and ends documents, if the tokenizer is known.
std::optional<std::int64_t> end_of_text(const std::string& tokenizer) {
  if (tokenizer != data::ByteTokenizer::name) return std::nullopt;
  return data::ByteTokenizer::end_of_text;
}

/// Writes tensors and their config.json into a folder. Returns the number of tensor files.
int export_folder(const std::string& out, const ModelFile& model, std::int64_t shard_bytes,
                  const checkpoint::HuggingFaceOutput& output, const std::string& config) {
  checkpoint::NewFolder folder(out);
  const int files = checkpoint::write_huggingface_shards(folder.partial(), model.settings.model,
                                                         shard_bytes, output, *model.parameters);
  checkpoint::write_text_file(folder.partial() + "/config.json", "model configuration", config);
  folder.commit();
  return files;
}

}  // namespace

int export_weights(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv, {"--dtype", "--shard-size"}, {"--overwrite"});
  require_two_files(arguments, "export", "WEIGHTS and OUT");
  const std::string in = resolve_model_path(arguments.files()[0]), &out = arguments.files()[1];
  require_output("OUT", out);
  const std::string type = arguments.text_option("--dtype").value_or("fp32");
  require(type == "fp32" || type == "bf16", "--dtype is '", type, "'; expected fp32 or bf16");
  const auto size = arguments.text_option("--shard-size");
  const bool is_file = !size && std::filesystem::path(out).extension() == ".safetensors";
  const std::int64_t shard_bytes = read_size(size.value_or("5GB"));
  require_another_file(in, out);
  if (is_file)
    require_free_name(out, arguments.flag("--overwrite"));
  else
    require(!arguments.flag("--overwrite"), "--overwrite replaces a file; OUT, '", out,
            "', is a folder, which must be new or empty");
  const ModelFile model = open_with_deck(in);
  model.parameters->verify();
  const checkpoint::HuggingFaceModel described = {
      model.settings.model, model.settings.training.sequence_length,
      type == "fp32" ? DType::fp32 : DType::bf16, end_of_text(model.tokenizer),
      model.parameters->huggingface_config()};
  const std::string config = checkpoint::write_huggingface_config(described);
  const checkpoint::Family family = checkpoint::family_of(described);
  const checkpoint::HuggingFaceOutput output = {
      family,
      described.tokens,
      described.dtype,
      {{"tokenizer", model.tokenizer}, {"program", text(program, " ", version())}}};
  int files = 1;
  if (is_file)
    checkpoint::write_huggingface(out, model.settings.model, output, *model.parameters);
  else
    files = export_folder(out, model, shard_bytes, output, config);
  std::cout << "wrote " << printable(out) << ", step " << format_count(model.step) << " of "
            << printable(in) << " as " << checkpoint::model_type(family) << " in " << type;
  if (is_file)
    std::cout << ": tensors alone; another OUT is a folder with its config.json\n";
  else
    std::cout << ", " << files << (files == 1 ? " file" : " files") << " and config.json\n";
  return 0;
}

int import_weights(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv, {"--deck", "--tokenizer"}, {"--overwrite"});
  require_two_files(arguments, "import", "IN and OUT");
  const std::string in = resolve_model_path(arguments.files()[0]), &out = arguments.files()[1];
  require_output("OUT", out);
  const auto deck = arguments.text_option("--deck");
  require_another_file(in, out);
  require_free_name(out, arguments.flag("--overwrite"));
  const bool described = single_model_kind(in) == FileKind::safetensors &&
                         !checkpoint::huggingface_config_next_to(in).empty();
  require(deck || described, "import needs --deck DECK: no config.json next to '", in,
          "' describes the model");
  const config::Settings settings = settings_of_safetensors(in, deck, std::nullopt);
  const auto source = checkpoint::open_parameters(
      in, settings.model, settings.training.sequence_length,
      [&](const std::string& deck_of_it) { config::require_same_model(settings, deck_of_it, in); });
  const std::string said = source->tokenizer();
  const std::string theirs = said.empty() ? unknown_tokenizer : said;
  const std::string tokenizer = arguments.text_option("--tokenizer").value_or(theirs);
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

}  // namespace ostrakon::apps::checkpoint_program
