// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <sstream>

#include "../support/comma_locale.hpp"

namespace ostrakon::tests {
namespace {

using config::read_machine;
using simulate::Machine;

const std::string smallest = R"(
ostrakon:
  machine:
    name: "small"
  fp32:
    product_teraflops: 0.5
  kernels:
    row_gigabytes_per_second: 20
  host:
    gigabytes_per_second: 10
    upload_gigabytes_per_second: 8
    download_gigabytes_per_second: 6
)";

std::string refusal(const std::string& text) {
  try {
    read_machine(text, "my.yaml");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string replace(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(MachineFile, NumbersAreInSiUnits) {
  const Machine machine = read_machine(smallest, "my.yaml");
  EXPECT_EQ(machine.name, "small");
  EXPECT_DOUBLE_EQ(machine.fp32.products, 5e11);
  EXPECT_DOUBLE_EQ(machine.kernels.row_bytes_per_second, 20e9);
  EXPECT_DOUBLE_EQ(machine.download_bytes_per_second, 6e9);
  EXPECT_EQ(machine.rates(2), nullptr);
  EXPECT_NE(machine.rates(4), nullptr);
}

TEST(MachineFile, NumbersFollowNoLocale) {
  const Machine plain = read_machine(smallest, "my.yaml");
  const ostrakon::testing::CommaLocale comma;
  EXPECT_EQ(read_machine(smallest, "my.yaml").fp32.products, plain.fp32.products);
  const std::string written = config::write_machine(plain, "a test", {});
  EXPECT_NE(written.find("product_teraflops: 0.5 "), std::string::npos) << written;
  EXPECT_EQ(read_machine(written, "my.yaml").fp32.products, plain.fp32.products);
}

TEST(MachineFile, SaysWhatIsWrongAndWhatWasExpected) {
  EXPECT_EQ(refusal(replace(smallest, "    name: \"small\"\n", "    ranks_per_node: 8\n")),
            "my.yaml: machine.name is missing; expected text");
  EXPECT_EQ(refusal(replace(smallest, "product_teraflops", "product_terraflops")),
            "my.yaml: unknown key fp32.product_terraflops; did you mean product_teraflops?");
  EXPECT_EQ(refusal(replace(smallest, "  kernels:", "  kernel:")),
            "my.yaml: unknown section kernel; did you mean kernels?");
  EXPECT_EQ(refusal(replace(smallest, ": 20\n", ": -20\n")),
            "my.yaml: kernels.row_gigabytes_per_second = -20: expected a number from 0 to "
            "1000000000: 10^9 bytes/s that norms, activations, losses read and write");
  EXPECT_EQ(refusal(replace(smallest, ": 20\n", ": 0\n")),
            "my.yaml: kernels.row_gigabytes_per_second = 0: expected a number above 0");
  EXPECT_NE(refusal(replace(smallest, ": 20\n", ": fast\n")).find("= \"fast\": expected a number"),
            std::string::npos);
  EXPECT_EQ(refusal(replace(smallest, "    upload_gigabytes_per_second: 8\n", "")),
            "my.yaml: host.upload_gigabytes_per_second is missing; expected a number above 0: from "
            "host to device");
  EXPECT_EQ(refusal(replace(smallest, "product_teraflops: 0.5", "peak_teraflops: 0.5")),
            "my.yaml: product_teraflops is missing; expected it in at least one of fp32, bits16, "
            "fp64");
  EXPECT_EQ(
      refusal(replace(smallest, "name: \"small\"", "name: \"small\"\n    ranks_per_node: 1.5")),
      "my.yaml: machine.ranks_per_node = 1.5: expected an integer from 0 to 1000000: devices "
      "of a node, with a rank each; 0: any number");
}

TEST(MachineFile, WhatIsWrittenReadsBack) {
  Machine machine = read_machine(smallest, "my.yaml");
  machine.cores_per_node = 2;
  machine.bits16.products = 123456789e6;
  machine.inside_nodes.base_seconds = 1.25e-5;
  machine.slowdown = 0.125;
  machine.thread_slowdown = 0.0625;
  machine.bits16.kernels.backward_rows = 0.5;
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
}

TEST(MachineFile, SaysWhichNumbersAreBounds) {
  Machine machine = read_machine(smallest, "my.yaml");
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
