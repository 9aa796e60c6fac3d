// SPDX-License-Identifier: Apache-2.0

// `reshard`: rewrites a checkpoint for another number of ranks.

#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/reshard.hpp>
#include <string>

#include "checkpoint_commands.hpp"
#include "model_file.hpp"
#include "output_file.hpp"
#include "run_in_use.hpp"

namespace ostrakon::apps::checkpoint_program {
namespace {

checkpoint::Files read_files(const std::string& kind) {
  const auto files = find_named(checkpoint::files_names, kind);
  require(files.has_value(), "--files is '", kind, "'; expected rank, node or single");
  return *files;
}

}  // namespace

int reshard(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv, {"--ranks", "--files", "--ranks-per-node"});
  require_two_files(arguments, "reshard", "CHECKPOINT and OUT");
  const std::string in = resolve_model_path(arguments.files()[0]), &out = arguments.files()[1];
  require_output("OUT", out);
  const auto ranks = arguments.integer_option<int>("--ranks");
  require(ranks.has_value(), "reshard needs --ranks N");
  checkpoint::Division division;
  division.ranks = *ranks;
  division.files = read_files(arguments.text_option("--files").value_or("rank"));
  division.ranks_per_node = arguments.integer_option<int>("--ranks-per-node").value_or(*ranks);
  division.check();
  require(single_model_kind(in) == FileKind::checkpoint, "'", in, "' is no checkpoint");
  const auto locks = lock_run_folders(out);
  checkpoint::CheckpointReader reader(in);
  const checkpoint::Manifest manifest = checkpoint::reshard(reader, out, division);
  std::cout << "wrote " << printable(out) << ", step " << format_count(manifest.progress.step)
            << " of " << printable(in) << " as " << format_count(division.ranks)
            << (division.ranks == 1 ? " rank" : " ranks") << " hold it, "
            << format_bytes(manifest.bytes()) << " in " << manifest.files.size()
            << (manifest.files.size() == 1 ? " file" : " files") << "\n";
  return 0;
}

}  // namespace ostrakon::apps::checkpoint_program
