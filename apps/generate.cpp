// SPDX-License-Identifier: Apache-2.0
// ostrakon-generate: samples text from trained weights.
#include <algorithm>
#include <charconv>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/train/generator.hpp>

#include "model_file.hpp"
#include "program.hpp"
#include "prompt.hpp"
#include "run_folder.hpp"

namespace {

using namespace ostrakon;
using Tokens = std::vector<std::int32_t>;

constexpr const char* program = "ostrakon-generate";

constexpr const char* usage =
    R"(usage: ostrakon-generate MODEL [options]

Continues a text with the model in MODEL: weights.h5 of ostrakon-train, one of its checkpoints, a run's
folder (its weights.h5 or, where there is none yet, its newest good checkpoint), or safetensors with
Hugging Face's names of GPT-2 or Llama (a file, an index, or a folder with either).

  --prompt TEXT       text to continue
  --prompt-file FILE  the same from a file; -: from standard input
                      Without either, what is piped or redirected into the program is the prompt. No
                      prompt: the start of a new document. A newline at the end of a file or of standard
                      input is no part of it
  --tokens N          tokens to write, at most (400)
  --samples N         texts to write (1)
  --temperature T     0 always takes the likeliest token (0.8)
  --top-k K           choose among the K likeliest tokens; 0: among all (0)
  --top-p P           choose among the fewest likeliest tokens whose probabilities, after temperature and
                      --top-k, sum to P or more; 1: among all (1)
  --seed S            another seed, another text (1)
  --ignore-end        go on after the end of a document
  --ids               the prompt and what is written are token ids: for a model whose tokens this program
                      can't turn into text. Ids of the prompt have commas or white space between them;
                      each sample is a line
  --end-of-text ID    with --ids: the token that ends a document, and begins one where there is no prompt
  --deck DECK         for safetensors: its section `model`, and sequence_length, describe the model
                      (default: config.json beside them)
  --tokenizer NAME    whose tokens the model knows, where MODEL does not say; text needs `byte`
  --context N         tokens to look back on, where positions are rotary (default: as trained)
  --library-threads N  of the matrix library (default: as many as Kokkos has)
  --help, --version
  --kokkos-...        flags of Kokkos
)";

struct CommandLine {
  std::string model;
  std::optional<std::string> deck, tokenizer, prompt, prompt_file;
  std::optional<std::int64_t> context, threads, end_of_text;
  std::int64_t tokens = 400;
  std::int64_t samples = 1;
  bool ignore_end = false;
  bool ids = false;
  train::SamplingSettings sampling;
};

template <class Number>
Number number(const std::string& option, const std::string& value, Number least, const char* what) {
  Number result{};
  const char* const end = value.data() + value.size();
  const auto [stopped, error] = std::from_chars(value.data(), end, result);
  require(error == std::errc() && stopped == end && result >= least && result - result == 0, option,
          " ", value, ": expected ", what, " >= ", least);
  return result;
}

double probability(const std::string& option, const std::string& value) {
  const auto result = number<double>(option, value, 0.0, "a number");
  require(result > 0.0 && result <= 1.0, option, " ", value,
          ": expected a number greater than 0 and at most 1");
  return result;
}

void set_option(CommandLine& line, const std::string& option, const std::string& value) {
  const auto integer = [&](std::int64_t least) {
    return number<std::int64_t>(option, value, least, "an integer");
  };
  if (option == "--deck") line.deck = value;
  if (option == "--tokenizer") line.tokenizer = value;
  if (option == "--context") line.context = integer(1);
  if (option == "--library-threads") {
    line.threads = integer(1);
    require(*line.threads <= 4096, option, " ", value, ": expected an integer from 1 to 4096");
  }
  if (option == "--prompt") line.prompt = value;
  if (option == "--prompt-file") line.prompt_file = value;
  if (option == "--end-of-text") line.end_of_text = integer(0);
  if (option == "--tokens") line.tokens = integer(1);
  if (option == "--samples") line.samples = integer(1);
  if (option == "--temperature")
    line.sampling.temperature = number<double>(option, value, 0.0, "a number");
  if (option == "--top-k")
    line.sampling.top_k = number<std::int32_t>(option, value, 0, "an integer");
  if (option == "--top-p") line.sampling.top_p = probability(option, value);
  if (option == "--seed")
    line.sampling.seed = number<std::uint64_t>(option, value, 0, "an integer");
}

CommandLine parse(const apps::Arguments& arguments) {
  CommandLine line;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind("-", 0) != 0) {
      require(line.model.empty(), "two files given, ", line.model, " and ", argument);
      line.model = argument;
      continue;
    }
    if (argument == "--ignore-end" || argument == "--ids") {
      (argument == "--ids" ? line.ids : line.ignore_end) = true;
      continue;
    }
    // "--seed 1" or "--seed=1"
    const std::size_t equals = argument.find('=');
    const std::string option = argument.substr(0, equals);
    const char* const known[] = {"--deck",        "--tokenizer", "--context", "--library-threads",
                                 "--prompt",      "--tokens",    "--samples", "--prompt-file",
                                 "--temperature", "--top-k",     "--top-p",   "--seed",
                                 "--end-of-text"};
    require(std::find(std::begin(known), std::end(known), option) != std::end(known),
            "unknown option ", option, "; see ostrakon-generate --help");
    require(equals != std::string::npos || i + 1 < arguments.size(), option,
            " needs a value after it");
    set_option(line, option,
               equals != std::string::npos ? argument.substr(equals + 1) : arguments[++i]);
  }
  require(!line.model.empty(), "no weights given; see ostrakon-generate --help");
  require(!line.prompt || !line.prompt_file, "--prompt and --prompt-file are both given");
  require(line.ids || !line.end_of_text, "--end-of-text ", line.end_of_text.value_or(0),
          ": is for --ids; text has an end of its own");
  return line;
}

// --- the model -----------------------------------------------------------------------------------

/// Learned positions are as many as were trained.
void set_context(config::Settings& settings, std::int64_t context, const std::string& weights) {
  const std::int64_t trained = settings.training.sequence_length;
  require(settings.model.positions == model::Positions::rotary || context == trained, "--context ",
          context, ": ", weights, " has learned positions, ", trained, "; expected no other");
  settings.training.sequence_length = context;
  // As a deck, so that it is checked against the model's sizes.
  settings = config::read_settings(config::write_deck(settings), text("--context ", context), {});
}

/// Throws Error unless this program can read and write text of the model.
void require_text(const apps::ModelFile& model, const CommandLine& line, const std::string& path) {
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

/// Opens the weights and checks that this program can do with them what it is asked to.
apps::ModelFile open_model(const std::string& path, const CommandLine& line) {
  const bool described = apps::one_model_kind(path) != apps::FileKind::safetensors;
  require(!described || !line.deck, "--deck is for safetensors; ", path, " has its deck in it");
  apps::ModelFile model =
      described ? apps::open_with_deck(path) : apps::open_safetensors(path, line.deck);
  if (!line.ids) require_text(model, line, path);
  require(!line.tokenizer || model.tokenizer == apps::unknown_tokenizer ||
              *line.tokenizer == model.tokenizer,
          path, ": trained on tokens of the tokenizer '", model.tokenizer, "'; --tokenizer says '",
          line.tokenizer.value_or(""), "'");
  if (line.context) set_context(model.settings, *line.context, path);
  return model;
}

// --- the prompt ----------------------------------------------------------------------------------

/// The token that ends a document, where it is known.
std::optional<std::int32_t> end_of_text(const apps::ModelFile& model, const CommandLine& line) {
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

std::string prompt_text(const CommandLine& line) {
  if (line.prompt) return *line.prompt;
  if (line.prompt_file) return apps::read_prompt(*line.prompt_file, std::cerr);
  const std::optional<std::string> piped = apps::piped_prompt(std::cerr);
  if (piped)
    std::cerr << "prompt: " << format_bytes(static_cast<std::int64_t>(piped->size()))
              << " from standard input" << std::endl;
  return piped.value_or("");
}

/// What is written, and how it begins.
struct Text {
  std::string prompt;  ///< as given
  Tokens tokens;       ///< at least one
  std::optional<std::int32_t> end;
};

Text begin_text(const apps::ModelFile& model, const CommandLine& line) {
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

// --- writing -------------------------------------------------------------------------------------

struct Writer {
  std::unique_ptr<train::Generator> generator;
  Text text;
};

/// The one model or, of those of a run's folder, the first without damage.
Writer make_writer(const CommandLine& line) {
  const bool of_run = apps::is_run_folder(line.model);
  require(!of_run || !line.deck, "--deck is for safetensors; '", line.model, "' is a run's folder");
  const std::vector<std::string> paths =
      of_run ? apps::models_of_run(line.model, std::cerr) : std::vector<std::string>{line.model};
  std::optional<Text> text;
  for (std::size_t i = 0;; ++i) {
    try {
      const apps::ModelFile model = open_model(paths[i], line);
      if (!text) text = begin_text(model, line);
      model.parameters->verify();
      if (of_run) std::cerr << "model: " << paths[i] << ", step " << model.step << std::endl;
      return {std::make_unique<train::Generator>(model.settings, *model.parameters), *text};
    } catch (const DamagedError& error) {
      if (i + 1 == paths.size()) throw;
      std::cerr << "damaged: " << error.what() << std::endl;
    }
  }
}

void write_text(const Writer& writer, const CommandLine& line,
                const train::SamplingSettings& sampling) {
  std::cout << writer.text.prompt << std::flush;
  writer.generator->continue_text(
      writer.text.tokens, line.tokens, sampling, [&](std::int32_t token) {
        if (token == writer.text.end) {
          if (line.ignore_end) std::cout << "\n----\n";
          return line.ignore_end;
        }
        std::cout << data::ByteTokenizer::decode(&token, 1) << std::flush;
        return true;
      });
  std::cout << std::endl;
}

void write_ids(const Writer& writer, const CommandLine& line,
               const train::SamplingSettings& sampling) {
  const char* between = "";
  for (const std::int32_t token : writer.text.tokens) {
    std::cout << between << token;
    between = " ";
  }
  std::cout << std::flush;
  writer.generator->continue_text(writer.text.tokens, line.tokens, sampling,
                                  [&](std::int32_t token) {
                                    if (token == writer.text.end && !line.ignore_end) return false;
                                    std::cout << " " << token << std::flush;
                                    return true;
                                  });
  std::cout << std::endl;
}

void write_samples(const Writer& writer, const CommandLine& line) {
  train::SamplingSettings sampling = line.sampling;
  for (std::int64_t sample = 0; sample < line.samples; ++sample) {
    sampling.sample = static_cast<std::uint64_t>(sample);
    if (sample > 0 && !line.ids) std::cout << "----\n";
    (line.ids ? write_ids : write_text)(writer, line, sampling);
    require(std::cout.good(), "can't write to the standard output");
  }
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program(program, usage, argc, argv, [](const apps::Arguments& arguments) {
    comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
    world.agree([&] {
      require(world.size() == 1, "started on ", world.size(), " ranks; expected one");
      const CommandLine line = parse(arguments);
      // As training does: a library that is left alone takes all cores, for products too small.
      math::set_gemm_threads(static_cast<int>(
          line.threads.value_or(Kokkos::DefaultHostExecutionSpace().concurrency())));
      write_samples(make_writer(line), line);
    });
    return 0;
  });
}
