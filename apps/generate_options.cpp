// SPDX-License-Identifier: Apache-2.0
#include "generate_options.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <ostrakon/base/error.hpp>

#include "command_line.hpp"

namespace ostrakon::apps::generate_program {

const char* const usage =
    R"(usage: ostrakon-generate MODEL [options]

Continues a text with the model in MODEL: weights.h5 of ostrakon-train, one of its checkpoints, a run's
folder (its weights.h5 or, if there is none yet, its newest undamaged checkpoint), or safetensors with
Hugging Face's names (a file, an index, or a folder with either).

  --prompt TEXT       text to continue
  --prompt-file FILE  the same from a file; -: from standard input
                      Without either, a new document begins. A newline at the end of a file or of
                      standard input is no part of the prompt
  --tokens N          tokens to write, at most (400)
  --samples N         texts to write (1)
  --temperature T     0 always takes the likeliest token (0.8)
  --top-k K           choose among the K likeliest tokens; 0: among all (0)
  --top-p P           choose among the fewest likeliest tokens whose probabilities, after temperature and
                      --top-k, sum to P or more; 1: among all (1)
  --seed S            seed of the random choice (1)
  --ignore-end        continue after the end of a document
  --ids               the prompt and what is written are token ids: for a model whose tokens this program
                      can't turn into text. Ids of the prompt have commas or white space between them;
                      each sample is a line
  --end-of-text ID    with --ids: the token that ends a document, and begins one where there is no prompt
  --deck DECK         for safetensors: its section `model`, and sequence_length, describe the model;
                      config.json next to them has to agree (default: it alone describes the model)
  --tokenizer NAME    tokenizer of the model, if MODEL does not name it; text needs `byte`
  --context N         length of the context, with learned positions at most as many as these (default:
                      as trained; for safetensors the positions or the window of config.json,
                      whichever is less). A text that outgrows it goes on from its newer half
  --library-threads N  of matrix products (default: as many as Kokkos has)
  --help, --version
  --kokkos-...        flags of Kokkos
)";

namespace {

template <class T>
T number(const std::string& option, const std::string& value, T least, const char* what) {
  T result{};
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

}  // namespace

CommandLine parse(const Arguments& arguments) {
  CommandLine line;
  GivenOnce once;
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
    // Options are given as "--seed 1" or "--seed=1".
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
    const std::string value =
        equals != std::string::npos ? argument.substr(equals + 1) : arguments[++i];
    once.add(option, value);
    set_option(line, option, value);
  }
  require(!line.model.empty(), "no weights given; see ostrakon-generate --help");
  require(!line.prompt || !line.prompt_file, "--prompt and --prompt-file are both given");
  require(line.ids || !line.end_of_text, "--end-of-text ", line.end_of_text.value_or(0),
          ": is for --ids; text has an end of its own");
  return line;
}

}  // namespace ostrakon::apps::generate_program
