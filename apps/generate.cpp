// SPDX-License-Identifier: Apache-2.0
// ostrakon-generate: samples text from trained weights.
#include <algorithm>
#include <charconv>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <ostrakon/train/generator.hpp>

#include "model_file.hpp"
#include "program.hpp"

namespace {

using namespace ostrakon;

constexpr const char* usage =
    R"(usage: ostrakon-generate WEIGHTS [options]

Continues a text with the model in WEIGHTS: weights.h5 of ostrakon-train, one of its checkpoints, or
safetensors with Hugging Face's names of GPT-2 or Llama (a file, an index, or a folder with either).

  --deck DECK         for safetensors: its section `model`, and sequence_length, describe the model
                      (default: config.json beside them)
  --tokenizer NAME    whose tokens the model knows, where WEIGHTS does not say; text needs `byte`
  --context N         tokens to look back on, where positions are rotary (default: as trained)
  --prompt TEXT       text to continue; default: the start of a new document
  --tokens N          tokens to write, at most (400)
  --samples N         texts to write (1)
  --temperature T     0 always takes the likeliest token (0.8)
  --top-k K           choose among the K likeliest tokens; 0: among all (0)
  --seed S            another seed, another text (1)
  --ignore-end        go on after the end of a document
  --help, --version
  --kokkos-...        flags of Kokkos
)";

struct CommandLine {
  std::string weights;
  std::optional<std::string> deck, tokenizer;
  std::optional<std::int64_t> context;
  std::string prompt;
  std::int64_t tokens = 400;
  std::int64_t samples = 1;
  bool ignore_end = false;
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

CommandLine parse(const apps::Arguments& arguments) {
  CommandLine line;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind("-", 0) != 0) {
      require(line.weights.empty(), "two files given, ", line.weights, " and ", argument);
      line.weights = argument;
      continue;
    }
    if (argument == "--ignore-end") {
      line.ignore_end = true;
      continue;
    }
    // "--seed 1" or "--seed=1"
    const std::size_t equals = argument.find('=');
    const std::string option = argument.substr(0, equals);
    const char* const known[] = {"--deck",    "--tokenizer",   "--context", "--prompt", "--tokens",
                                 "--samples", "--temperature", "--top-k",   "--seed"};
    require(std::find(std::begin(known), std::end(known), option) != std::end(known),
            "unknown option ", option, "; see ostrakon-generate --help");
    require(equals != std::string::npos || i + 1 < arguments.size(), option,
            " needs a value after it");
    const std::string value =
        equals != std::string::npos ? argument.substr(equals + 1) : arguments[++i];
    constexpr const char* integer = "an integer";
    if (option == "--deck") line.deck = value;
    if (option == "--tokenizer") line.tokenizer = value;
    if (option == "--context") line.context = number<std::int64_t>(option, value, 1, integer);
    if (option == "--prompt") line.prompt = value;
    if (option == "--tokens") line.tokens = number<std::int64_t>(option, value, 1, integer);
    if (option == "--samples") line.samples = number<std::int64_t>(option, value, 1, integer);
    if (option == "--temperature")
      line.sampling.temperature = number<double>(option, value, 0.0, "a number");
    if (option == "--top-k") line.sampling.top_k = number<std::int32_t>(option, value, 0, integer);
    if (option == "--seed") line.sampling.seed = number<std::uint64_t>(option, value, 0, integer);
  }
  require(!line.weights.empty(), "no weights given; see ostrakon-generate --help");
  return line;
}

/// Learned positions are as many as were trained.
void set_context(config::Settings& settings, std::int64_t context, const std::string& weights) {
  const std::int64_t trained = settings.training.sequence_length;
  require(settings.model.positions == model::Positions::rotary || context == trained, "--context ",
          context, ": ", weights, " has learned positions, ", trained, "; expected no other");
  settings.training.sequence_length = context;
  // As a deck, so that it is checked against the model's sizes.
  settings = config::read_settings(config::write_deck(settings), text("--context ", context), {});
}

/// Opens the weights and checks that this program can write text with them.
apps::ModelFile open_model(const CommandLine& line) {
  const bool described = apps::one_model_kind(line.weights) != apps::FileKind::safetensors;
  require(!described || !line.deck, "--deck is for safetensors; ", line.weights,
          " has its deck in it");
  apps::ModelFile model = described ? apps::open_with_deck(line.weights)
                                    : apps::open_safetensors(line.weights, line.deck);
  const bool says = model.tokenizer != apps::unknown_tokenizer;
  require(says || line.tokenizer, line.weights,
          " does not say whose tokens it knows; expected --tokenizer NAME");
  const std::string tokenizer = says ? model.tokenizer : *line.tokenizer;
  require(tokenizer == data::ByteTokenizer::name, line.weights,
          ": trained on tokens of the tokenizer '", tokenizer,
          "', which this program can't turn into text; it knows ", data::ByteTokenizer::name);
  require(!line.tokenizer || *line.tokenizer == tokenizer, line.weights,
          ": trained on tokens of the tokenizer '", tokenizer, "'; --tokenizer says '",
          line.tokenizer.value_or(""), "'");
  const std::int64_t vocabulary = model.settings.model.vocabulary;
  require(vocabulary == data::ByteTokenizer::vocabulary, line.weights, ": its vocabulary of ",
          vocabulary, " is not that of the byte tokenizer, ", data::ByteTokenizer::vocabulary);
  if (line.context) set_context(model.settings, *line.context, line.weights);
  return model;
}

std::unique_ptr<train::Generator> make_generator(const CommandLine& line) {
  const apps::ModelFile model = open_model(line);
  model.parameters->verify();
  return std::make_unique<train::Generator>(model.settings, *model.parameters);
}

void write_sample(train::Generator& generator, const CommandLine& line, std::int64_t sample) {
  std::vector<std::int32_t> prompt = {data::ByteTokenizer::end_of_text};
  data::ByteTokenizer::encode(line.prompt, prompt);
  std::cout << line.prompt << std::flush;
  train::SamplingSettings sampling = line.sampling;
  sampling.sample = static_cast<std::uint64_t>(sample);
  generator.continue_text(prompt, line.tokens, sampling, [&](std::int32_t token) {
    if (token == data::ByteTokenizer::end_of_text) {
      if (line.ignore_end) std::cout << "\n----\n";
      return line.ignore_end;
    }
    std::cout << data::ByteTokenizer::decode(&token, 1) << std::flush;
    return true;
  });
  std::cout << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program(
      "ostrakon-generate", usage, argc, argv, [](const apps::Arguments& arguments) {
        comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
        CommandLine line;
        std::unique_ptr<train::Generator> generator;
        world.agree([&] {
          require(world.size() == 1, "started on ", world.size(), " ranks; expected one");
          line = parse(arguments);
          generator = make_generator(line);
        });
        for (std::int64_t sample = 0; sample < line.samples; ++sample) {
          if (sample > 0) std::cout << "----\n";
          write_sample(*generator, line, sample);
        }
        return 0;
      });
}
