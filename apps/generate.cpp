// SPDX-License-Identifier: Apache-2.0
// ostrakon-generate: samples text from trained weights.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <ostrakon/base/error.hpp>
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

double number(const std::string& option, const std::string& value, double least) {
  char* end = nullptr;
  const double result = std::strtod(value.c_str(), &end);
  require(!value.empty() && *end == '\0' && result >= least && result < 1e18, option, " ", value,
          ": expected a number >= ", least);
  return result;
}

std::int64_t whole(const std::string& option, const std::string& value, double least) {
  const double result = number(option, value, least);
  require(result == static_cast<double>(static_cast<std::int64_t>(result)), option, " ", value,
          ": expected a whole number");
  return static_cast<std::int64_t>(result);
}

CommandLine parse(const apps::Arguments& arguments) {
  CommandLine line;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& option = arguments[i];
    if (option.rfind("-", 0) != 0) {
      require(line.weights.empty(), "two files given, ", line.weights, " and ", option);
      line.weights = option;
      continue;
    }
    if (option == "--ignore-end") {
      line.ignore_end = true;
      continue;
    }
    require(option == "--prompt" || option == "--tokens" || option == "--samples" ||
                option == "--temperature" || option == "--top-k" || option == "--seed",
            "unknown option ", option, "; see ostrakon-generate --help");
    require(i + 1 < arguments.size(), option, " needs a value after it");
    const std::string& value = arguments[++i];
    if (option == "--prompt") line.prompt = value;
    if (option == "--tokens") line.tokens = whole(option, value, 1);
    if (option == "--samples") line.samples = whole(option, value, 1);
    if (option == "--temperature") line.sampling.temperature = number(option, value, 0);
    if (option == "--top-k") line.sampling.top_k = static_cast<int>(whole(option, value, 0));
    if (option == "--seed")
      line.sampling.seed = static_cast<std::uint64_t>(whole(option, value, 0));
  }
  require(!line.weights.empty(), "no weights given; see ostrakon-generate --help");
  return line;
}

void write_sample(train::Generator& generator, const CommandLine& line, std::int64_t sample) {
  std::vector<std::int32_t> prompt = {data::ByteTokenizer::end_of_text};
  data::ByteTokenizer::encode(line.prompt, prompt);
  std::cout << line.prompt << std::flush;
  train::SamplingSettings sampling = line.sampling;
  sampling.seed += static_cast<std::uint64_t>(sample);
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
