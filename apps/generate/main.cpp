// SPDX-License-Identifier: Apache-2.0
// ostrakon-generate: samples text from trained weights.
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_tokenizer.hpp>
#include <ostrakon/checkpoint/models_of_run.hpp>
#include <ostrakon/generate/continue_texts.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/math/products/gemm.hpp>

#include "../common/model_file.hpp"
#include "../common/program.hpp"
#include "prompt.hpp"

namespace {

using namespace ostrakon;
using Tokens = std::vector<std::int32_t>;

// --- the command line ----------------------------------------------------------------------------

struct Line {
  std::optional<std::string> deck, tokenizer, prompt, prompt_file;
  std::optional<std::int64_t> context, end_of_text;
  std::optional<int> threads;
  std::int64_t tokens = 400;
  std::int64_t samples = 1;
  bool ignore_end = false;
  bool ids = false;
  train::SamplingSettings sampling;
};

apps::Value temperature(double& to) {
  return {[&to](const std::string& value) {
    const auto number = apps::read_number(value, 0.0, std::numeric_limits<double>::max());
    to = number.value_or(0.0);
    return number ? "" : "a number >= 0";
  }};
}

apps::Program program_of(Line& line) {
  return {
      "ostrakon-generate",
      "",
      {{"",
        "MODEL",
        R"(Continues a text with the model in MODEL: weights.h5 of ostrakon-train, one of its checkpoints, a
run's folder (its weights.h5 or, if there is none yet, its newest undamaged checkpoint), or
safetensors with Hugging Face's names (a file, an index, or a folder with either).)",
        {{"--prompt", "TEXT", apps::any_text(line.prompt), "text to continue"},
         {"--prompt-file", "FILE", apps::word(line.prompt_file),
          "the same from a file; -: from standard input. Without either, a new document begins. A "
          "newline at the end of a file or of standard input is no part of the prompt"},
         {"--tokens", "N", apps::integer(line.tokens, 1), "tokens to write, at most (400)"},
         {"--samples", "N", apps::integer(line.samples, 1), "texts to write (1)"},
         {"--temperature", "T", temperature(line.sampling.temperature),
          "0 always takes the likeliest token (0.8)"},
         {"--top-k", "K", apps::integer(line.sampling.top_k, 0),
          "choose among the K likeliest tokens; 0: among all (0)"},
         {"--top-p", "P", apps::above_zero(line.sampling.top_p, 1.0),
          "choose among the fewest likeliest tokens whose probabilities, after temperature and "
          "--top-k, sum to P or more; 1: among all (1)"},
         {"--seed", "S", apps::integer(line.sampling.seed, 0), "seed of the random choice (1)"},
         {"--ignore-end", "", apps::flag(line.ignore_end), "continue after the end of a document"},
         {"--ids", "", apps::flag(line.ids),
          "the prompt and what is written are token ids: for a model whose tokens this program "
          "can't turn into text. Ids of the prompt have commas or white space between them; each "
          "sample is a line"},
         {"--end-of-text", "ID", apps::with("--ids", apps::integer(line.end_of_text, 0)),
          "the token that ends a document, and begins one where there is no prompt"},
         {"--deck", "DECK", apps::word(line.deck),
          "for safetensors: its section `model`, and sequence_length, describe the model; "
          "config.json next to them has to agree (default: it alone describes the model)"},
         {"--tokenizer", "NAME", apps::any_text(line.tokenizer),
          "tokenizer of the model, if MODEL does not name it; text needs `byte`"},
         {"--context", "N", apps::integer(line.context, 1),
          "length of the context, with learned positions at most as many as these (default: as "
          "trained; for safetensors the positions of config.json). A text that outgrows it goes "
          "on from its newer half"},
         {"--library-threads", "N", apps::integer(line.threads, 1, 4096),
          "of matrix products (default: as many as Kokkos has)"}},
        {},
        {{"--prompt", "--prompt-file"}}}},
      {},
      "",
      apps::Runs::on_one_rank};
}

// --- the model -----------------------------------------------------------------------------------

/// Sets the context length, which may be shorter than a table of learned positions, but not longer.
void set_context(apps::ModelFile& model, std::int64_t context, const std::string& weights) {
  config::Settings& settings = model.settings;
  const std::int64_t rows = settings.model.position_rows(settings.training.sequence_length);
  const bool is_learned = settings.model.positions == model::Positions::learned;
  require(!is_learned || context <= rows, "--context ", context, ": ", weights,
          " has learned positions, ", rows, "; expected as many at most");
  if (is_learned) settings.model.max_positions = rows;
  settings.training.sequence_length = context;
  // The settings are converted to a deck and back, which checks them against the model's sizes.
  settings = config::read_settings(config::write_deck(settings), text("--context ", context), {},
                                   config::DeckUse::model);
  const std::string kept = model.parameters->huggingface_config();
  if (!kept.empty())
    checkpoint::require_computed(checkpoint::parse_huggingface_config(kept, weights), context);
}

/// Throws Error unless this program can read and write text of the model.
void require_text(const apps::ModelFile& model, const Line& line, const std::string& path) {
  const bool says = model.tokenizer != apps::unknown_tokenizer;
  require(says || line.tokenizer, path,
          " does not say whose tokens it knows; expected --tokenizer NAME, or --ids to read and "
          "write token ids");
  const std::string tokenizer = says ? model.tokenizer : *line.tokenizer;
  require(tokenizer == data::ByteTokenizer::name, path, ": trained on tokens of the tokenizer '",
          tokenizer, "', which this program can't turn into text; it knows ",
          data::ByteTokenizer::name, ". With --ids it reads and writes token ids");
  const std::int64_t vocabulary = model.settings.model.vocabulary;
  require(vocabulary == data::ByteTokenizer::vocabulary, path, ": its vocabulary of ", vocabulary,
          " is not that of the byte tokenizer, ", data::ByteTokenizer::vocabulary,
          ". With --ids this program reads and writes token ids");
}

/// Opens the weights and checks that this program can use them as requested.
apps::ModelFile open_model(const std::string& path, const Line& line) {
  const bool described = apps::single_model_kind(path) != apps::FileKind::safetensors;
  require(!described || !line.deck, "--deck is for safetensors; ", path, " has its deck in it");
  apps::ModelFile model = described ? apps::open_with_deck(path)
                                    : apps::open_safetensors(path, line.deck, line.context);
  if (!line.ids) require_text(model, line, path);
  require(!line.tokenizer || model.tokenizer == apps::unknown_tokenizer ||
              *line.tokenizer == model.tokenizer ||
              // With ids it does not matter if the tokenizer's files were given another name.
              (line.ids && model.tokenizer == checkpoint::huggingface_tokenizer(path)),
          path, ": trained on tokens of the tokenizer '", model.tokenizer, "'; --tokenizer says '",
          line.tokenizer.value_or(""), "'");
  if (line.context) set_context(model, *line.context, path);
  const std::string unchecked = model.parameters->unchecked();
  if (!unchecked.empty()) std::cerr << "ostrakon-generate: note: " << printable(unchecked) << "\n";
  return model;
}

// --- the prompt ----------------------------------------------------------------------------------

/// Returns the token that ends a document, if it is known.
std::optional<std::int32_t> end_of_text(const apps::ModelFile& model, const Line& line) {
  const std::int64_t vocabulary = model.settings.model.vocabulary;
  require(line.end_of_text.value_or(0) < vocabulary, "--end-of-text ", line.end_of_text.value_or(0),
          ": expected an id from 0 to ", vocabulary - 1);
  if (line.end_of_text) return static_cast<std::int32_t>(*line.end_of_text);
  const std::string tokenizer = line.tokenizer.value_or(model.tokenizer);
  if (!line.ids ||
      (tokenizer == data::ByteTokenizer::name && vocabulary == data::ByteTokenizer::vocabulary))
    return data::ByteTokenizer::end_of_text;
  return std::nullopt;
}

std::string prompt_text(const Line& line) {
  if (line.prompt_file) return apps::read_prompt(*line.prompt_file, std::cerr);
  return line.prompt.value_or("");
}

/// A text to write, and its beginning.
struct Text {
  std::string prompt;  ///< as given
  Tokens tokens;       ///< at least one
  std::optional<std::int32_t> end;
};

Text begin_text(const apps::ModelFile& model, const Line& line) {
  Text text;
  text.end = end_of_text(model, line);
  text.prompt = prompt_text(line);
  if (line.ids) {
    text.tokens = apps::parse_ids(text.prompt, model.settings.model.vocabulary);
    require(
        !text.tokens.empty() || text.end,
        "--ids without a prompt; expected --prompt ID,ID,..., or --end-of-text ID, with which a "
        "new document begins");
    if (text.tokens.empty()) text.tokens = {*text.end};
  } else {
    text.tokens = {*text.end};
    data::ByteTokenizer::encode(text.prompt, text.tokens);
  }
  const std::int64_t context = model.settings.training.sequence_length;
  const auto count = static_cast<std::int64_t>(text.tokens.size());
  if (count > context)
    std::cerr << "the prompt has " << count << " tokens, the model looks back on " << context
              << ": the first " << count - (context + 1) / 2 << " are not seen" << std::endl;
  return text;
}

/// Sequences of up to rotary_original_length tokens have rotary frequencies of their own
/// (longrope): a text that fits in these is written with them, unless the user sets the context.
void fit_rotary_context(apps::ModelFile& model, const Line& line, const Text& text,
                        const std::string& path) {
  const math::RotarySettings& rotary = model.settings.model.rotary;
  const std::int64_t length = rotary.original_length;
  const std::int64_t needed = static_cast<std::int64_t>(text.tokens.size()) + line.tokens;
  if (line.context || rotary.scaling != math::RotaryScaling::longrope || needed > length) return;
  if (length < model.settings.training.sequence_length) set_context(model, length, path);
}

// --- writing -------------------------------------------------------------------------------------

struct Writer {
  std::unique_ptr<train::Generator> generator;
  Text text;
};

void tell_damage(const std::string& problem) {
  std::cerr << "damaged: " << printable(problem) << std::endl;
}

/// Opens the given model or, for a run's folder, the first one without damage.
Writer make_writer(const Line& line, const std::string& named) {
  const bool of_run = checkpoint::is_run_folder(named);
  require(!of_run || !line.deck, "--deck is for safetensors; '", named, "' is a run's folder");
  const std::vector<std::string> paths =
      of_run ? checkpoint::models_of_run(named, tell_damage)
             : std::vector<std::string>{apps::resolve_model_path(named)};
  std::optional<Text> text;
  for (std::size_t i = 0;; ++i) {
    try {
      apps::ModelFile model = open_model(paths[i], line);
      if (!text) text = begin_text(model, line);
      fit_rotary_context(model, line, *text, paths[i]);
      model.parameters->verify();
      if (of_run)
        std::cerr << "model: " << printable(paths[i]) << ", step " << model.step << std::endl;
      return {std::make_unique<train::Generator>(model.settings, *model.parameters), *text};
    } catch (const DamagedError& error) {
      if (i + 1 == paths.size()) throw;
      tell_damage(error.what());
    }
  }
}

void write_sample(const Writer& writer, const Line& line, const train::SamplingSettings& sampling) {
  const char* between = "";
  if (!line.ids) std::cout << writer.text.prompt;
  for (const std::int32_t token : line.ids ? writer.text.tokens : Tokens()) {
    std::cout << between << token;
    between = " ";
  }
  std::cout << std::flush;
  train::continue_texts(*writer.generator, {{writer.text.tokens, sampling}}, line.tokens,
                        [&](std::size_t, std::int32_t token) {
                          const bool is_end = token == writer.text.end;
                          if (is_end && !line.ignore_end) return false;
                          std::cout << (line.ids ? text(" ", token)
                                        : is_end ? "\n----\n"
                                                 : data::ByteTokenizer::decode(&token, 1))
                                    << std::flush;
                          return std::cout.good();
                        });
  std::cout << std::endl;
}

void write_samples(const Writer& writer, const Line& line) {
  train::SamplingSettings sampling = line.sampling;
  for (std::int64_t sample = 0; sample < line.samples; ++sample) {
    sampling.sample = static_cast<std::uint64_t>(sample);
    if (sample > 0 && !line.ids) std::cout << "----\n";
    write_sample(writer, line, sampling);
    require(std::cout.good(), "can't write to the standard output");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Line line;
  const auto run = [&](comm::Communicator& world, const apps::Given& given) {
    world.run_collectively([&] {
      require(world.size() == 1, "started on ", world.size(), " ranks; expected one");
      // Threads are set as in training: by default libraries use all cores, although the products
      // are too small for that.
      math::set_gemm_threads(line.threads.value_or(host_threads()));
      write_samples(make_writer(line, given.operands[0]), line);
    });
    return 0;
  };
  return apps::run_program(program_of(line), argc, argv, run);
}
