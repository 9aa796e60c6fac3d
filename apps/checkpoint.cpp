// SPDX-License-Identifier: Apache-2.0

// ostrakon-checkpoint: shows checkpoints and weight files, compares them, and converts weights to
// Hugging Face's format and back.

#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/version.hpp>
#include <string>

#include "checkpoint_commands.hpp"
#include "serial_program.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::apps::checkpoint_program;

constexpr const char* usage =
    R"(usage: ostrakon-checkpoint inspect FILE
       ostrakon-checkpoint verify FILE
       ostrakon-checkpoint diff A B
       ostrakon-checkpoint export FILE OUT.safetensors [--dtype fp32|bf16] [--overwrite]
       ostrakon-checkpoint export FILE OUT [--shard-size SIZE] [--dtype fp32|bf16]
       ostrakon-checkpoint import FILE OUT.h5 [--deck DECK] [--tokenizer NAME] [--overwrite]
       ostrakon-checkpoint reshard CHECKPOINT OUT --ranks N [--files rank|node|single]
                           [--ranks-per-node M]

FILE, A and B are weights.h5 of ostrakon-train, one of its checkpoints (checkpoints/step-00001200, or
checkpoints/latest), or safetensors: one file, an index (model.safetensors.index.json), or a folder
with either. inspect and verify take a folder of checkpoints, too. export takes no safetensors.
An OUT that is there already is refused, but for an empty folder where OUT is one; --overwrite
replaces a file.

inspect  prints what a file holds: parameters, shapes, types; of a checkpoint also how far the run
         was, files, ranks and optimizer; of a folder of checkpoints a table of them
verify   reads all of a file: each checksum of weights.h5 and checkpoints; the form of safetensors,
         which have none
diff     prints the largest absolute difference of each parameter; between two checkpoints of each
         moment, too, and in what else they differ (lines of their decks do not count as different)
export   writes weights as safetensors with the names of Hugging Face's GPT-2, GPT-BigCode, Llama,
         Mistral, Mixtral, Phi-3, Qwen3, Qwen3-MoE or Starcoder2: the type from which they were imported,
         or else one that fits the deck. OUT is a new folder, with config.json; OUT.safetensors is one
         file of tensors alone
    --dtype fp32|bf16      dtype of OUT (default fp32)
    --shard-size SIZE      of the folder's files, at most (default 5GB; 500MB; powers of 1000); there is
                           an index where there are several
import   writes weights as weights.h5
    --deck DECK            its section `model`, and sequence_length, describe the weights; compared
                           with config.json next to FILE (default: config.json alone describes them)
    --tokenizer NAME       tokenizer of the weights (default: that in FILE, or external)
reshard  writes a checkpoint as N ranks would have saved it (not needed to resume on N ranks)
    --ranks N              that hold equal parts of each array
    --files KIND           which write one file together (default rank): rank, node or single (all)
    --ranks-per-node M     for --files node (default N)

--help and --version print and exit. Exit status: 0 done, of diff: equal; 1 bad input, damage or
failure, of diff: not equal.
)";

/// Returns the exit status.
int run(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--") break;
    if (argument == "--help" || argument == "-h") {
      std::cout << usage;
      return 0;
    }
    if (argument == "--version") {
      std::cout << program << " " << version() << "\n";
      return 0;
    }
  }
  const std::string command = argc > 1 ? argv[1] : "";
  const char* const commands = "inspect, verify, diff, export, import or reshard";
  require(!command.empty(), "no command; expected ", commands, " (see --help)");
  if (command == "inspect") return inspect(argc, argv);
  if (command == "verify") return verify(argc, argv);
  if (command == "diff") return diff(argc, argv);
  if (command == "export") return export_weights(argc, argv);
  if (command == "import") return import_weights(argc, argv);
  if (command == "reshard") return reshard(argc, argv);
  throw Error(text("unknown command '", command, "'; expected ", commands));
}

}  // namespace

int main(int argc, char** argv) {
  return ostrakon::apps::run_serial_program(program, [&] { return run(argc, argv); });
}
