// SPDX-License-Identifier: Apache-2.0

// ostrakon-data: converts text to token files, and shows them.

#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/version.hpp>
#include <string>

#include "data_commands.hpp"
#include "serial_program.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::apps::data_program;

constexpr const char* usage =
    R"(usage: ostrakon-data build --output PREFIX [options] FILE_OR_FOLDER...
       ostrakon-data import --vocabulary V --output FILE [options] RAW
       ostrakon-data info FILE
       ostrakon-data verify FILE
       ostrakon-data show FILE [--document N | --begin I --count N] [--ids]

build   turns text files into PREFIX-train.h5 and PREFIX-validation.h5
    --output PREFIX            where to write; folders on the way are made
    --overwrite                replace files that have these names; else they are refused
    --validation-fraction F    share of the documents held out; 0: none (default 0.05)
    --separator LINE           documents end at lines that equal LINE; without it, each file is one
    --tokenizer byte           one token for each byte of text (default)
    --seed N                   of the split (default 1)
import  turns RAW, token ids that another tokenizer wrote one after another as little-endian
        numbers, or as a NumPy array (.npy), into the token file FILE
    --vocabulary V             every id is less than V
    --dtype TYPE               of RAW's numbers: uint16, uint32, uint64 or uint8 (default: that of
                               a .npy; else uint16 where V fits in it, and uint32)
    --tokenizer NAME           of the tokenizer that wrote the ids; or the folder of a Hugging Face
                               model, or its tokenizer.json (default: external, which is unknown).
                               Training compares it with that of weights
    --end-of-text ID           each ID ends a document; without it, all of RAW is one
    --bytes N                  bytes of the text that RAW was made of; or
    --token-bytes FILE         bytes of text of every id, V numbers: 0's, 1's, ... With either, validation
                               on FILE reports bits per byte
    --output FILE              where to write; folders on the way are made
    --overwrite                replace a file that has this name; else it is refused
info    prints the header of a token file: tokens, documents, vocabulary, tokenizer
verify  reads all of a token file and checks it
show    prints its text: document N (default 0), or N tokens from token I on. Where it is not made of
        bytes: its ids, a line for each document
    --ids                      ids, whatever it is made of

--help and --version print and exit.
)";

void run(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--") break;
    if (argument == "--help" || argument == "-h") {
      std::cout << usage;
      return;
    }
    if (argument == "--version") {
      std::cout << "ostrakon-data " << version() << "\n";
      return;
    }
  }
  const std::string command = argc > 1 ? argv[1] : "";
  require(!command.empty(),
          "no command; expected build, import, info, verify or show (see --help)");
  if (command == "build") return build(argc, argv);
  if (command == "import") return import_tokens(argc, argv);
  if (command == "info") return info(argc, argv);
  if (command == "verify") return verify(argc, argv);
  if (command == "show") return show(argc, argv);
  throw Error(
      text("unknown command '", command, "'; expected build, import, info, verify or show"));
}

}  // namespace

int main(int argc, char** argv) {
  return ostrakon::apps::run_serial_program(program, [&] {
    run(argc, argv);
    return 0;
  });
}
