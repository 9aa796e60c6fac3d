// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <hdf5.h>
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/manifest_text.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <support/damage.hpp>
#include <support/scratch_folder.hpp>
#include <utility>
#include <vector>

#include "command.hpp"
#include "support/table.hpp"
#include "support/trials.hpp"

// What a user can get wrong, and what the programs say: exit status 1, soon, one line that begins
// with "<program>: error", nothing that only a developer could read.

namespace ostrakon::testing {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

struct BadInput {
  std::string name;
  Texts arguments;
  Texts fragments;   ///< of the error
  std::string deck;  ///< written to <name>.yaml, the first argument; empty: none is written
};

/// A small deck that trains, with more lines of a section put in.
inline std::string deck_with(const std::string& section = "", const std::string& lines = "") {
  const std::vector<std::pair<std::string, std::string>> sections = {
      {"model", "    layers: 2\n    width: 32\n    heads: 4\n    vocabulary: 257\n"},
      {"data", "    dataset: synthetic\n"},
      {"training",
       "    steps: 2\n    global_batch_size: 8\n    micro_batch_size: 2\n"
       "    sequence_length: 16\n"}};
  std::string deck = "ostrakon:\n";
  bool found = section.empty();
  for (const auto& [name, keys] : sections) {
    deck += "  " + name + ":\n";
    std::istringstream stream(keys);
    for (std::string key; std::getline(stream, key);)
      if (section != name || lines.find(key.substr(0, key.find(':') + 1)) == std::string::npos)
        deck += key + "\n";
    if (section == name) deck += lines;
    found = found || section == name;
  }
  return found ? deck : deck + "  " + section + ":\n" + lines;
}

inline BadInput bad_key(const std::string& name, const std::string& section,
                        const std::string& line, const Texts& fragments) {
  return {name, {}, fragments, deck_with(section, "    " + line + "\n")};
}

inline BadInput bad_deck(const std::string& name, const std::string& deck, const Texts& fragments) {
  return {name, {}, fragments, deck};
}

/// The small deck with settings on the command line.
inline BadInput bad_settings(const std::string& name, const Texts& settings,
                             const Texts& fragments) {
  BadInput bad = {name, {}, fragments, deck_with()};
  for (const std::string& setting : settings) {
    bad.arguments.push_back("--set");
    bad.arguments.push_back(setting);
  }
  return bad;
}

inline BadInput bad_data(const std::string& name, const std::string& path, const Texts& fragments) {
  Texts all = fragments;
  all.push_back("--set data.path=\"" + path + "\", relative to the working directory: ");
  return bad_settings(name, {"data.dataset=tokens", "data.path=" + path}, all);
}

inline BadInput bad_command(const std::string& name, const Texts& arguments,
                            const Texts& fragments) {
  return {name, arguments, fragments, ""};
}

/// Reads rows "arguments | what is said .. what is said", "set key=value; key=value | ...",
/// "key section.key: value | ..." and "data path | ...".
inline std::vector<BadInput> bad_inputs(const std::string& table) {
  static int count = 0;
  std::vector<BadInput> inputs;
  for (const Texts& row : rows_of(table)) {
    const std::string name = "row-" + std::to_string(++count);
    const std::string kind = row[0].substr(0, row[0].find(' '));
    const std::string rest = row[0].substr(std::min(kind.size() + 1, row[0].size()));
    const Texts said = split(row[1], "..");
    const std::size_t dot = rest.find('.');
    if (kind == "set")
      inputs.push_back(bad_settings(name, split(rest, ";"), said));
    else if (kind == "key")
      inputs.push_back(bad_key(name, rest.substr(0, dot), rest.substr(dot + 1), said));
    else if (kind == "data")
      inputs.push_back(bad_data(name, rest, said));
    else
      inputs.push_back(bad_command(name, words_of(row[0]), said));
  }
  return inputs;
}

inline int count_lines_with(const std::string& text, const std::string& begin) {
  std::istringstream stream(text);
  int count = 0;
  for (std::string line; std::getline(stream, line);) count += line.rfind(begin, 0) == 0 ? 1 : 0;
  return count;
}

/// mpiexec of Open MPI 5 has words of its own on each failure of more than one rank.
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
constexpr bool mpiexec_is_quiet = false;
#else
constexpr bool mpiexec_is_quiet = true;
#endif

/// What stands on lines below the error.
inline std::string below_error(const std::string& text) {
  const std::size_t error = text.find(": error");
  return error == std::string::npos ? ""
                                    : text.substr(std::min(text.find('\n', error), text.size()));
}

/// The error, with the lines below it that go on with it, which are indented.
inline std::string error_lines(const std::string& text) {
  std::istringstream stream(text);
  std::string error;
  for (std::string line; std::getline(stream, line);)
    if (error.empty() ? line.find(": error") != std::string::npos : line.rfind("  ", 0) == 0)
      error += line + "\n";
    else if (!error.empty())
      break;
  return error.empty() ? "(no error line)" : error;
}

/// What is wrong with how a program took bad input, a line each; empty where all is well.
inline std::string complaints(const std::string& name, const BadInput& bad,
                              const Outcome& outcome) {
  std::ostringstream out;
  if (outcome.timed_out) out << "hang: ended after " << outcome.seconds << " s\n";
  if (outcome.status != 1) out << "exit status " << outcome.status << ", expected 1\n";
  const int errors = count_lines_with(outcome.err, name + ": error");
  if (errors != 1) out << errors << " error lines, expected 1\n";
  if (outcome.out.find(": error") != std::string::npos) out << "an error on standard output\n";
  const std::string error = error_lines(outcome.err);
  for (const std::string& fragment : bad.fragments)
    if (error.find(fragment) == std::string::npos)
      out << "the error does not say: " << fragment << "\n";
  const std::string all = outcome.out + outcome.err;
  for (const char* noise :
       {"terminate called", "HDF5-DIAG", ".cpp", ".hpp", "MPI_ABORT", "MPI_Abort", "Segmentation",
        "Process received signal", "exited on signal", "Assertion", "Sanitizer", "Traceback"})
    if (all.find(noise) != std::string::npos) out << "the output has: " << noise << "\n";
  return out.str();
}

/// Files that every case may name.
class BadInputs : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new ScratchFolder;
    fs::create_directories(path("text"));
    std::string text;
    for (int i = 0; i < 300; ++i)
      text += "The quick brown fox number " + std::to_string(i) + " jumps over the lazy dog.\n";
    write_bytes(path("text/fox.txt"), text);
    write_bytes(path("a-file"), "not a folder\n");
    write_bytes(path("pointer"), "version https://git-lfs.github.com/spec/v1\noid sha256:" +
                                     std::string(64, 'a') + "\nsize 2200119864\n");
    fs::create_directories(path("a-folder"));
    // Nothing is wrong with a program for one process under mpiexec.
    const Outcome built = run_command(
        mpi_job("ostrakon-data", 1,
                {"build", "--output", "good", "--validation-fraction", "0", "text"}, path("")));
    if (built.status != 0) throw std::runtime_error(built.err);
    write_bytes(path("deck.yaml"), deck_with());
    must_run("ostrakon-train",
             {"deck.yaml", "--set", "output.directory=synthetic", "--set", "checkpoint.every=2"});
    must_run("ostrakon-train", {"deck.yaml", "--set", "output.directory=trained", "--set",
                                "data.dataset=tokens", "--set", "data.path=good-train.h5"});

    const std::string good = read_bytes(path("good-train.h5"));
    write_bytes(path("empty.h5"), "");
    write_bytes(path("truncated.h5"), good.substr(0, good.size() / 3));
    // Tokens have two bytes each.
    write_flipped("good-train.h5", "flipped.h5", std::string("j\0u\0m\0p\0s\0", 10));
    fs::copy_file(path("good-train.h5"), path("liar.h5"));
    set_vocabulary(path("liar.h5"), 100);
    const std::string weights = read_bytes(path("trained/weights.h5"));
    write_bytes(path("truncated-weights.h5"), weights.substr(0, weights.size() / 2));
    write_bytes(path("flipped-weights.h5"), weights);
    damage_a_value(path("flipped-weights.h5"));
    make_plain_hdf5(path("plain.h5"));
    break_checkpoints();

    for (const char* taken : {"deck.yaml", "metrics.jsonl", "weights.h5"})
      fs::create_directories(path(std::string("taken-") + taken) + "/" + taken);
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string path(const std::string& name) { return folder_->file(name); }

  static void expect_refused(const std::string& name, const std::vector<int>& ranks,
                             const std::vector<BadInput>& some, const std::string& rows) {
    std::vector<BadInput> table = bad_inputs(rows);
    table.insert(table.end(), some.begin(), some.end());
    expect_refused(name, ranks, table);
  }
  static void expect_refused(const std::string& name, const std::vector<int>& ranks,
                             const std::string& rows) {
    expect_refused(name, ranks, bad_inputs(rows));
  }
  /// Each row of a table for one rank and for two is for one, and a third of them for two: rows of
  /// a table are refused in one place.
  static void expect_refused(const std::string& name, const std::vector<int>& ranks,
                             const std::vector<BadInput>& table) {
    const auto is_sampled = [&](std::size_t row, std::size_t r) {
      return r == 0 || row % static_cast<std::size_t>(tests::every_nth(3)) == 0;
    };
    const int count = static_cast<int>(table.size() * ranks.size());
    std::vector<Outcome> outcomes(static_cast<std::size_t>(count));
    for (const BadInput& bad : table)
      if (!bad.deck.empty()) write_bytes(path(bad.name + ".yaml"), bad.deck);
    // One after the other with the same input: some write into the same folder.
    in_parallel(static_cast<int>(table.size()), [&](int row) {
      const auto first = static_cast<std::size_t>(row) * ranks.size();
      for (std::size_t r = 0; r < ranks.size(); ++r)
        if (is_sampled(static_cast<std::size_t>(row), r))
          outcomes[first + r] = start(name, table[static_cast<std::size_t>(row)], ranks[r]);
    });
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      if (!is_sampled(i / ranks.size(), i % ranks.size())) continue;
      const BadInput& bad = table[i / ranks.size()];
      const std::string found = complaints(name, bad, outcomes[i]);
      if (found.empty()) continue;
      ADD_FAILURE() << bad.name << " " << ::testing::PrintToString(bad.arguments)
                    << ", ranks: " << ranks[i % ranks.size()] << "\n"
                    << found << outcomes[i].err;
    }
    EXPECT_FALSE(fs::exists(path("output"))) << "a run that was refused wrote something";
  }

 private:
  static Outcome start(const std::string& name, const BadInput& bad, int ranks) {
    Texts arguments = bad.arguments;
    if (!bad.deck.empty()) arguments.insert(arguments.begin(), bad.name + ".yaml");
    Command command = program(name, ranks, arguments, path(""));
    return run_command(command);
  }

  static void must_run(const std::string& name, const Texts& arguments) {
    const Outcome outcome = run_command(program(name, 1, arguments, path("")));
    if (outcome.status != 0) throw std::runtime_error(name + ": " + outcome.err);
  }

  static void write_flipped(const std::string& from, const std::string& to,
                            const std::string& where) {
    const std::string bytes = read_bytes(path(from));
    const std::size_t at = bytes.find(where);
    if (at == std::string::npos) throw std::runtime_error("nothing to flip in " + from);
    write_bytes(path(to), bytes);
    damage(path(to), at);
  }

  /// Copies of a good checkpoint, each with one thing wrong.
  static void break_checkpoints() {
    const auto copy = [](const std::string& name) {
      fs::create_directories(path(fs::path(name).parent_path().string()));
      fs::copy(path("synthetic/checkpoints/step-00000002"), path(name),
               fs::copy_options::recursive);
      return path(name);
    };
    write_changed(copy("newer") + "/manifest.json", "\"version\": 1,", "\"version\": 2,", true);
    write_changed(copy("changed") + "/manifest.json", "\"seed\": 1,", "\"seed\": 2,", false);
    write_changed(copy("all-bad/checkpoints/step-00000002") + "/manifest.json", "\"seed\": 1,",
                  "\"seed\": 2,", false);
    fs::remove(copy("without-a-file") + "/rank-00000.h5");
    fs::resize_file(copy("cut-off") + "/rank-00000.h5", 5000);
    write_bytes(copy("no-json") + "/manifest.json", "Dear program, these are my weights.\n");
    fs::remove(copy("unfinished/step-00000002") + "/manifest.json");
  }

  /// Puts `to` for `from`, of the same length, and a checksum that is right again if `signs`.
  static void write_changed(const std::string& manifest, const std::string& from,
                            const std::string& to, bool signs) {
    std::string text = read_bytes(manifest);
    const std::size_t at = text.find(from);
    if (at == std::string::npos) throw std::runtime_error("no " + from + " in " + manifest);
    text.replace(at, from.size(), to);
    if (signs)
      text.replace(checkpoint::checksum_place(text), checkpoint::checksum_digits,
                   format_hex(checkpoint::checksum_of_text(text)));
    write_bytes(manifest, text);
  }

  static void set_vocabulary(const std::string& file_path, std::int64_t vocabulary) {
    const hid_t file = H5Fopen(file_path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t attribute = H5Aopen(file, "vocabulary", H5P_DEFAULT);
    if (H5Awrite(attribute, H5T_NATIVE_INT64, &vocabulary) < 0)
      throw std::runtime_error("can't change " + file_path);
    H5Aclose(attribute);
    H5Fclose(file);
  }

  static void make_plain_hdf5(const std::string& file_path) {
    H5Fclose(H5Fcreate(file_path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  }

  static inline ScratchFolder* folder_ = nullptr;
};

inline const std::vector<int> one_and_two = {1, 2};

}  // namespace ostrakon::testing
