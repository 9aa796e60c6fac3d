// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/machine_checks.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <sstream>

#include "../support/comma_locale.hpp"
#include "machines.hpp"
#include "support/messages.hpp"

namespace ostrakon::tests {
namespace {

using config::read_machine;
using simulate::Machine;

std::string refusal(const std::string& text) {
  return testing::error_of([&] { read_machine(text, "my.yaml"); });
}

std::string replace(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(MachineFile, NumbersAreInSiUnits) {
  const Machine machine = read_machine(smallest_machine_file, "my.yaml");
  EXPECT_EQ(machine.name, "small");
  EXPECT_DOUBLE_EQ(machine.fp32.products, 5e11);
  EXPECT_DOUBLE_EQ(machine.kernels.row_bytes_per_second, 20e9);
  EXPECT_DOUBLE_EQ(machine.download_bytes_per_second, 6e9);
  EXPECT_EQ(machine.rates(2), nullptr);
  EXPECT_NE(machine.rates(4), nullptr);
}

TEST(MachineFile, NumbersFollowNoLocale) {
  const Machine plain = read_machine(smallest_machine_file, "my.yaml");
  const ostrakon::testing::CommaLocale comma;
  EXPECT_EQ(read_machine(smallest_machine_file, "my.yaml").fp32.products, plain.fp32.products);
  const std::string written = config::write_machine(plain, "a test", {});
  EXPECT_NE(written.find("product_teraflops: 0.5 "), std::string::npos) << written;
  EXPECT_EQ(read_machine(written, "my.yaml").fp32.products, plain.fp32.products);
}

TEST(MachineFile, SaysWhatIsWrongAndWhatWasExpected) {
  EXPECT_EQ(
      refusal(replace(smallest_machine_file, "    name: \"small\"\n", "    ranks_per_node: 8\n")),
      "my.yaml: machine.name is missing; expected text");
  EXPECT_EQ(refusal("ostrakon:\n  stack:\n    name: other\n"),
            "my.yaml: has the section stack alone, as files of --stack have; expected a machine's "
            "file");
  EXPECT_EQ(refusal(replace(smallest_machine_file, "product_teraflops", "product_terraflops")),
            "my.yaml: unknown key fp32.product_terraflops; did you mean product_teraflops?");
  EXPECT_EQ(refusal(replace(smallest_machine_file, "  kernels:", "  kernel:")),
            "my.yaml: unknown section kernel; did you mean kernels?");
  EXPECT_EQ(refusal(replace(smallest_machine_file, ": 20\n", ": -20\n")),
            "my.yaml: kernels.row_gigabytes_per_second = -20: expected a number from 1e-6 to "
            "1000000000: 10^9 bytes/s that norms, activations, losses read and write");
  EXPECT_NE(refusal(replace(smallest_machine_file, ": 20\n", ": fast\n"))
                .find("= \"fast\": expected a number"),
            std::string::npos);
  EXPECT_EQ(refusal(replace(smallest_machine_file, "    upload_gigabytes_per_second: 8\n", "")),
            "my.yaml: host.upload_gigabytes_per_second is missing; expected a number above 0: from "
            "host to device");
  EXPECT_EQ(
      refusal(replace(smallest_machine_file, "product_teraflops: 0.5", "peak_teraflops: 0.5")),
      "my.yaml: product_teraflops is missing; expected it in at least one of fp32, bits16, "
      "fp64");
  EXPECT_EQ(refusal(replace(smallest_machine_file, "name: \"small\"",
                            "name: \"small\"\n    ranks_per_node: 1.5")),
            "my.yaml: machine.ranks_per_node = 1.5: expected an integer from 0 to 1000000: devices "
            "of a node, with a rank each; 0: any number");
}

struct OddFile {
  const char* section;  ///< with its key, of a smallest_machine_file file
  const char* key;
  const char* number;
  const char* more;  ///< other keys of that section
  const char* told;  ///< what a message begins with, behind "my.yaml: " and the key
};

// Numbers by which a step would take no time, or forever, and rates above what is stated, too.
TEST(MachineFile, RefusesWhatCanNotBe) {
  const OddFile files[] = {
      {"kernels", "row_gigabytes_per_second", "0", "", ": expected a number from 1e-6 to"},
      {"kernels", "row_gigabytes_per_second", "1e-307", "", ": expected a number from 1e-6 to"},
      {"kernels", "row_gigabytes_per_second", "1e-320", "", ": expected a number from 1e-6 to"},
      {"fp32", "product_teraflops", "1e400", "",
       ": expected 0, or a number from 1e-6 to 1000000000"},
      {"fp32", "product_teraflops", "0.5", "peak_teraflops: 0.4",
       ": expected at most 0.4, as fp32.peak_teraflops = 0.4"},
      {"fp32", "attention_teraflops", "0.7", "product_teraflops: 0.5\n    peak_teraflops: 0.6",
       ": expected at most 0.6, as fp32.peak_teraflops = 0.6"},
      {"bits8", "product_teraflops", "2000", "peak_teraflops: 1979",
       ": expected at most 1979, as bits8.peak_teraflops = 1979"},
      {"across_nodes", "gigabytes_per_second", "13.34", "line_gigabits_per_second: 100",
       ": expected at most 12.5, as across_nodes.line_gigabits_per_second = 100"},
      {"inside_nodes", "all_to_all_gigabytes_per_second", "301", "line_gigabits_per_second: 2400",
       ": expected at most 300, as inside_nodes.line_gigabits_per_second = 2400"},
      {"machine", "memory_gigabytes_per_second", "15", "name: \"small\"", nullptr},
      {"variation", "jitter_percent", "1e-9", "", ": expected 0, or a number from 1e-6 to 1000"},
      {"inside_nodes", "base_microseconds", "1e9", "", ": expected 0, or a number from 1e-6 to"}};
  for (const OddFile& file : files) {
    const std::string heading = std::string("  ") + file.section + ":\n";
    const std::string given = std::string("    ") + file.key + ": " + file.number + "\n" +
                              (*file.more == '\0' ? "" : std::string("    ") + file.more + "\n");
    std::string text = smallest_machine_file;
    const std::size_t at = text.find(heading);
    if (at == std::string::npos)
      text += heading + given;
    else
      text.replace(at, text.find("\n  ", at + heading.size() + 4) + 1 - at, heading + given);
    const std::string message = refusal(text);
    const std::string expected =
        file.told == nullptr
            ? "my.yaml: kernels.row_gigabytes_per_second = 20: expected at most 15, "
              "as machine.memory_gigabytes_per_second = 15"
            : std::string("my.yaml: ") + file.section + "." + file.key + " = " + file.number +
                  file.told;
    EXPECT_EQ(message.substr(0, expected.size()), expected) << text;
  }
}

/// The beginning of the one line, or none.
std::string told_of(const Machine& machine) {
  const std::vector<std::string> lines = config::keys_without_effect(machine);
  EXPECT_LE(lines.size(), 1U);
  return lines.empty() ? "" : lines.front().substr(0, lines.front().find(' '));
}

TEST(MachineFile, TellsKeysThatHaveNoEffect) {
  const Machine machine = read_machine(smallest_machine_file, "my.yaml");
  EXPECT_EQ(told_of(machine), "");
  const auto with = [&](const char* key, const auto& change) {
    Machine odd = machine;
    change(odd);
    EXPECT_EQ(told_of(odd), key);
  };
  with("machine.attention_by_products", [](Machine& m) { m.attention_by_products = true; });
  with("machine.ll128_between_nodes", [](Machine& m) { m.ll128_between_nodes = true; });
  with("", [](Machine& m) { m.ll128_between_nodes = m.has_protocols = true; });
  with("kernels.threads_percent", [](Machine& m) { m.thread_slowdown = 0.1; });
  with("fp64.peak_teraflops", [](Machine& m) { m.fp64.peak = 1e12; });
  with("bits16.product_width", [](Machine& m) { m.bits16.kernels.product_width = 100.0; });
  with("", [](Machine& m) { m.fp32.kernels.product_width = 100.0; });
  with("bits8.product_width", [](Machine& m) { m.bits8.product_width = 100.0; });
  with("across_nodes.all_to_all_gigabytes_per_second",
       [](Machine& m) { m.across_nodes.exchange_bytes_per_second = 1e9; });
  with("inside_nodes.inside_step_microseconds",
       [](Machine& m) { m.inside_nodes.inside_step_seconds = 1e-6; });
  with("", [](Machine& m) { m.across_nodes.inside_step_seconds = 1e-6; });
  with("across_nodes.inside_step_microseconds", [](Machine& m) {
    m.across_nodes.inside_step_seconds = 1e-6;
    m.ranks_per_node = 1;
  });
}

TEST(MachineFile, TellsRatesAboveThePeakOfMfu) {
  const auto keys = [](const auto& change) {
    Machine machine = read_machine(smallest_machine_file, "my.yaml");
    machine.fp32.peak = 0.6e12;
    change(machine);
    std::string names;
    for (const std::string& line : config::keys_above_peak(machine, 4))
      names += line.substr(0, line.find(' ')) + ";";
    return names;
  };
  EXPECT_EQ(keys([](Machine&) {}), "");
  EXPECT_EQ(keys([](Machine& m) { m.fp32.peak = 0.0; }), "fp32.peak_teraflops;");
  EXPECT_EQ(keys([](Machine& m) { m.kernels.backward_products = 0.8; }),
            "kernels.backward_products;");
  EXPECT_EQ(keys([](Machine& m) { m.fp32.kernels.backward_attention = 0.8; }),
            "fp32.backward_attention;");
  EXPECT_EQ(keys([](Machine& m) { m.kernels.attention_width = 64.0; }), "kernels.attention_width;");
  EXPECT_EQ(keys([](Machine& m) { m.bits8.products = 1e12; }), "bits8.product_teraflops;");
}

TEST(MachineFile, SpeaksOfNoDecks) {
  for (const std::string& text :
       {std::string("\n"), std::string(100000, ' '), smallest_machine_file + "---\nostrakon: {}\n",
        replace(smallest_machine_file, "small\"", "small\"\n    <<: 1"),
        replace(smallest_machine_file, "name: ", "name: !!str ")})
    EXPECT_EQ(refusal(text).find("deck"), std::string::npos) << refusal(text);
}

TEST(MachineFile, WhatIsWrittenReadsBack) {
  Machine machine = read_machine(smallest_machine_file, "my.yaml");
  machine.cores_per_node = 2;
  machine.bits16.products = 123456789e6;
  machine.inside_nodes.base_seconds = 1.25e-5;
  machine.slowdown = 0.125;
  machine.thread_slowdown = 0.0625;
  machine.bits16.kernels.backward_rows = 0.5;
  machine.bits8 = {1979e12, 1400e12, 700.0};
  machine.memory_bytes_per_second = 3.35e12;
  machine.across_nodes.line_bytes_per_second = 50e9;
  const std::string text = config::write_machine(machine, "measured here");
  const Machine again = read_machine(text, "again.yaml");
  EXPECT_EQ(text, config::write_machine(again, "measured here"));
  EXPECT_EQ(again.cores_per_node, 2);
  EXPECT_NEAR(again.bits16.products, machine.bits16.products, 1e-5 * machine.bits16.products);
  EXPECT_DOUBLE_EQ(again.inside_nodes.base_seconds, 1.25e-5);
  EXPECT_DOUBLE_EQ(again.slowdown, 0.125);
  EXPECT_DOUBLE_EQ(again.thread_slowdown, 0.0625);
  EXPECT_DOUBLE_EQ(again.bits16.kernels.backward_rows, 0.5);
  EXPECT_EQ(again.fp32.kernels.backward_rows, 0.0) << "as in kernels";
  EXPECT_DOUBLE_EQ(again.bits8.products, 1400e12);
  EXPECT_DOUBLE_EQ(again.memory_bytes_per_second, 3.35e12);
  EXPECT_NE(text.find("line_gigabits_per_second: 400 "), std::string::npos) << text;
}

TEST(MachineFile, SaysWhichNumbersAreBounds) {
  Machine machine = read_machine(smallest_machine_file, "my.yaml");
  machine.bits16.products = 8e14;
  const std::string text = config::write_machine(
      machine, "measured here", {{"bits16.product_teraflops", "a bound, at most this"}});
  EXPECT_NE(text.find("    product_teraflops: 800  # a bound, at most this; that large matrix"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("    product_teraflops: 0.5  # that large matrix"), std::string::npos)
      << text;
  EXPECT_DOUBLE_EQ(read_machine(text, "again.yaml").bits16.products, 8e14);
}

TEST(MachineFile, AllThatAreShippedAreRead) {
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(OSTRAKON_MACHINES)) {
    if (entry.path().extension() != ".yaml") continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_NO_THROW(read_machine(text.str(), entry.path().string())) << entry.path();
    ++read;
  }
  EXPECT_GE(read, 1);
}

}  // namespace
}  // namespace ostrakon::tests
