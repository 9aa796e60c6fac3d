// SPDX-License-Identifier: Apache-2.0
// ostrakon-generate: samples text from trained weights.
#include <algorithm>
#include <charconv>
#include <iostream>
#include <iterator>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <ostrakon/train/generator.hpp>

#include "program.hpp"

namespace {

using namespace ostrakon;

constexpr const char* usage =
    R"(usage: ostrakon-generate WEIGHTS [options]

Continues a text with the model in WEIGHTS, the weights.h5 that ostrakon-train writes.

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
    const char* const known[] = {"--prompt",      "--tokens", "--samples",
                                 "--temperature", "--top-k",  "--seed"};
    require(std::find(std::begin(known), std::end(known), option) != std::end(known),
            "unknown option ", option, "; see ostrakon-generate --help");
    require(equals != std::string::npos || i + 1 < arguments.size(), option,
            " needs a value after it");
    const std::string value =
        equals != std::string::npos ? argument.substr(equals + 1) : arguments[++i];
    constexpr const char* integer = "an integer";
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
          const std::string tokenizer = checkpoint::WeightsReader(line.weights).tokenizer();
          require(tokenizer == data::ByteTokenizer::name, line.weights,
                  ": trained on tokens of the tokenizer '", tokenizer,
                  "', which this program can't turn into text; it knows ",
                  data::ByteTokenizer::name);
          generator = std::make_unique<train::Generator>(line.weights);
          const std::int64_t vocabulary = generator->settings().model.vocabulary;
          require(vocabulary == data::ByteTokenizer::vocabulary, line.weights,
                  ": its vocabulary of ", vocabulary, " is not that of the byte tokenizer, ",
                  data::ByteTokenizer::vocabulary);
        });
        for (std::int64_t sample = 0; sample < line.samples; ++sample) {
          if (sample > 0) std::cout << "----\n";
          write_sample(*generator, line, sample);
        }
      });
}
