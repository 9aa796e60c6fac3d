// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/machine_file.hpp>

#include <algorithm>
#include <functional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/config/machine_checks.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/config/stack_file.hpp>
#include <ostrakon/config/value.hpp>
#include <set>
#include <vector>

namespace ostrakon::config {
namespace {

using simulate::Machine;

/// A number of a machine file; the machine's field is the number times `unit`.
struct Number {
  const char* section;
  const char* key;
  std::function<double&(Machine&)> in;
  double unit;
  double most;  ///< in the unit of the file
  bool required;
  const char* what;
  bool of_dtype = false;  ///< whether it is in the section of a dtype
};

/// Fields that are integers in the machine are read and written through these.
struct Whole {
  const char* key;
  std::function<void(Machine&, std::int64_t)> set;
  std::function<std::int64_t(const Machine&)> get;
  const char* what;
  std::int64_t most = 1000000;
};
using machine_units::giga;
using machine_units::gigabit;
using machine_units::micro;
using machine_units::percent;
using machine_units::tera;
/// The least number besides 0, in the unit of the file: none makes a time infinite.
constexpr double least = 1e-6;
constexpr std::int64_t gibibyte = std::int64_t{1} << 30;

#define MEMBER(expression) [](Machine& machine) -> double& { return machine.expression; }

const std::vector<Number>& numbers() {
  static const std::vector<Number> all = [] {
    std::vector<Number> list = {{"machine", "memory_gigabytes_per_second",
                                 MEMBER(memory_bytes_per_second), giga, 1e9, false,
                                 "that the maker states, and no kernel exceeds; 0: not known"}};
    // The section of a dtype has kernel numbers of its own; 0 stands for the number in `kernels`.
    const auto kernels = [&](const char* section, auto of, bool required) {
      const auto add = [&](const char* key, double simulate::KernelRates::*number, double unit,
                           double most, const char* what) {
        const bool needed = required && number == &simulate::KernelRates::row_bytes_per_second;
        list.push_back({section, key, [of, number](Machine& m) -> double& { return of(m).*number; },
                        unit, most, needed, what});
      };
      using Rates = simulate::KernelRates;
      add("product_width", &Rates::product_width, 1.0, 1e6,
          "side of a weight with which a product runs at half of the rate");
      add("attention_width", &Rates::attention_width, 1.0, 1e6,
          "the same of a head's width; the rate of attention is that of 128");
      add("backward_products", &Rates::backward_products, 1.0, 100.0,
          "times what an operation of a product takes in forward, in backward; 0: as long");
      add("backward_attention", &Rates::backward_attention, 1.0, 100.0, "the same of attention");
      add("backward_rows", &Rates::backward_rows, 1.0, 100.0,
          "the same of a byte of kernels without products");
      add("product_microseconds", &Rates::product_seconds, micro, 1e6,
          "of a matrix product besides its operations");
      add("row_gigabytes_per_second", &Rates::row_bytes_per_second, giga, 1e9,
          "10^9 bytes/s that norms, activations, losses read and write");
      add("row_kernel_microseconds", &Rates::row_kernel_seconds, micro, 1e6,
          "of each of these besides");
      add("activation_gigaelements_per_second", &Rates::activations_per_second, giga, 1e9,
          "10^9 elements/s of activation functions besides their bytes; 0: in no time");
    };
    const auto rates = [&](const char* section, auto of) {
      list.push_back({section, "peak_teraflops", [of](Machine& m) -> double& { return of(m).peak; },
                      tera, 1e9, false, "10^12 operations/s that the maker states, for MFU"});
      list.push_back({section, "product_teraflops",
                      [of](Machine& m) -> double& { return of(m).products; }, tera, 1e9, false,
                      "that large matrix products reach; 0: no such dtype"});
      list.push_back({section, "attention_teraflops",
                      [of](Machine& m) -> double& { return of(m).attention; }, tera, 1e9, false,
                      "that attention reaches, causal half counted; 0: as products"});
      kernels(
          section, [of](Machine& m) -> simulate::KernelRates& { return of(m).kernels; }, false);
    };
    rates("fp32", [](Machine& m) -> simulate::ComputeRates& { return m.fp32; });
    rates("bits16", [](Machine& m) -> simulate::ComputeRates& { return m.bits16; });
    const std::vector<Number> bits8 = {
        {"bits8", "peak_teraflops", MEMBER(bits8.peak), tera, 1e9, false,
         "10^12 operations/s of products of 8 bits that the maker states"},
        {"bits8", "product_teraflops", MEMBER(bits8.products), tera, 1e9, false,
         "that large products of 8 bits reach; 0: not known"},
        {"bits8", "product_width", MEMBER(bits8.product_width), 1.0, 1e6, false,
         "side of a weight with which a product of 8 bits runs at half of the rate"}};
    list.insert(list.end(), bits8.begin(), bits8.end());
    rates("fp64", [](Machine& m) -> simulate::ComputeRates& { return m.fp64; });
    for (Number& number : list) number.of_dtype = std::string(number.section) != "machine";
    kernels(
        "kernels", [](Machine& m) -> simulate::KernelRates& { return m.kernels; }, true);
    const std::vector<Number> all_dtypes = {
        {"kernels", "update_gigabytes_per_second", MEMBER(update_bytes_per_second), giga, 1e9,
         false, "of the optimizer, and of sums of gradients; 0: as row kernels"},
        {"kernels", "convert_gigabytes_per_second", MEMBER(convert_bytes_per_second), giga, 1e9,
         false, "of parameters and gradients that change their dtype; 0: as updates"},
        {"kernels", "norm_gigabytes_per_second", MEMBER(norm_bytes_per_second), giga, 1e9, false,
         "of sums of squares of gradients; 0: as row kernels"},
        {"kernels", "slowdown_percent", MEMBER(slowdown), percent, 1e4, false,
         "by how much longer a rank computes while it communicates"},
        {"kernels", "threads_percent", MEMBER(thread_slowdown), percent, 1e4, false,
         "by how much longer it computes where streams have threads that share its core"}};
    list.insert(list.end(), all_dtypes.begin(), all_dtypes.end());
    const auto network = [&](const char* section, auto of) {
      list.push_back({section, "gigabytes_per_second",
                      [of](Machine& m) -> double& { return of(m).bytes_per_second; }, giga, 1e9,
                      false, "that a rank sends in a large ring; 0: there is no such network"});
      list.push_back({section, "all_to_all_gigabytes_per_second",
                      [of](Machine& m) -> double& { return of(m).exchange_bytes_per_second; }, giga,
                      1e9, false, "in an all-to-all, and of messages; 0: as in a ring"});
      list.push_back({section, "base_microseconds",
                      [of](Machine& m) -> double& { return of(m).base_seconds; }, micro, 1e6, false,
                      "of each collective or message"});
      list.push_back({section, "step_microseconds",
                      [of](Machine& m) -> double& { return of(m).step_seconds; }, micro, 1e6, false,
                      "of each step of a ring"});
      list.push_back({section, "inside_step_microseconds",
                      [of](Machine& m) -> double& { return of(m).inside_step_seconds; }, micro, 1e6,
                      false, "across nodes: of its steps inside nodes; 0: as inside_nodes"});
      list.push_back({section, "message_microseconds",
                      [of](Machine& m) -> double& { return of(m).message_seconds; }, micro, 1e6,
                      false, "of each message of an all-to-all"});
      list.push_back(
          {section, "line_gigabits_per_second",
           [of](Machine& m) -> double& { return of(m).line_bytes_per_second; }, gigabit, 1e9, false,
           "that the lines of a rank carry each way, and no rate exceeds; 0: not known"});
    };
    network("inside_nodes", [](Machine& m) -> simulate::Network& { return m.inside_nodes; });
    network("across_nodes", [](Machine& m) -> simulate::Network& { return m.across_nodes; });
    const std::vector<Number> others = {
        {"host", "gigabytes_per_second", MEMBER(host_bytes_per_second), giga, 1e9, true,
         "of arrays that the host updates and sums, each byte once"},
        {"host", "upload_gigabytes_per_second", MEMBER(upload_bytes_per_second), giga, 1e9, true,
         "from host to device"},
        {"host", "download_gigabytes_per_second", MEMBER(download_bytes_per_second), giga, 1e9,
         true, "from device to host"},
        {"host", "step_microseconds", MEMBER(step_seconds), micro, 1e9, false,
         "of each step besides: reading a batch, starting"},
        {"variation", "rank_percent", MEMBER(rank_deviation), percent, 1e3, false,
         "standard deviation of a rank's time for a step"},
        {"variation", "jitter_percent", MEMBER(jitter), percent, 1e3, false,
         "by how much longer a step takes on 16 ranks than on 8, and with each further doubling"},
        {"variation", "run_percent", MEMBER(run_deviation), percent, 1e3, false,
         "standard deviation of a step's time between runs"},
        {"variation", "faster_percent", MEMBER(any_step.faster), percent, 99, false,
         "19 of 20 measured steps take at most so much less than simulated, apart from runs"},
        {"variation", "slower_percent", MEMBER(any_step.slower), percent, 1e3, false,
         "and at most so much more"},
        {"variation", "tensor_faster_percent", MEMBER(tensor_step.faster), percent, 99, false,
         "the same with tensor ranks, where it is larger"},
        {"variation", "tensor_slower_percent", MEMBER(tensor_step.slower), percent, 1e3, false,
         "likewise"},
        {"variation", "pipeline_faster_percent", MEMBER(pipeline_step.faster), percent, 99, false,
         "the same with stages, where it is larger"},
        {"variation", "pipeline_slower_percent", MEMBER(pipeline_step.slower), percent, 1e3, false,
         "likewise"},
        {"variation", "full_memory_faster_percent", MEMBER(full_memory_step.faster), percent, 99,
         false, "the same where the arena takes 80 % of the memory or more"},
        {"variation", "full_memory_slower_percent", MEMBER(full_memory_step.slower), percent, 1e3,
         false, "likewise"}};
    list.insert(list.end(), others.begin(), others.end());
    return list;
  }();
  return all;
}

const std::vector<Whole>& wholes() {
  static const std::vector<Whole> all = {
      {"ranks_per_node", [](Machine& m, std::int64_t n) { m.ranks_per_node = static_cast<int>(n); },
       [](const Machine& m) -> std::int64_t { return m.ranks_per_node; },
       "devices of a node, with a rank each; 0: any number"},
      {"cores_per_node", [](Machine& m, std::int64_t n) { m.cores_per_node = static_cast<int>(n); },
       [](const Machine& m) -> std::int64_t { return m.cores_per_node; },
       "cores that the ranks of a node share; 0: ranks have devices"},
      {"attention_by_products",
       [](Machine& m, std::int64_t n) { m.attention_by_products = n != 0; },
       [](const Machine& m) -> std::int64_t { return m.attention_by_products ? 1 : 0; },
       "1: devices without attention on chip: AMD's, NVIDIA's before sm_80", 1},
      {"memory_gibibytes", [](Machine& m, std::int64_t n) { m.memory_bytes = n * gibibyte; },
       [](const Machine& m) { return m.memory_bytes / gibibyte; },
       "of a rank's device; 0: not known"},
      {"nccl_protocols", [](Machine& m, std::int64_t n) { m.has_protocols = n != 0; },
       [](const Machine& m) -> std::int64_t { return m.has_protocols ? 1 : 0; },
       "1: collectives may use NCCL's protocols for small messages", 1},
      {"ll128_between_nodes", [](Machine& m, std::int64_t n) { m.ll128_between_nodes = n != 0; },
       [](const Machine& m) -> std::int64_t { return m.ll128_between_nodes ? 1 : 0; },
       "1: of these, LL128 also across nodes", 1}};
  return all;
}

std::vector<std::string> names_of_sections() {
  std::vector<std::string> names;
  for (const Number& number : numbers())
    if (names.empty() || names.back() != number.section) names.emplace_back(number.section);
  return names;
}

std::vector<std::string> names_of_keys(const std::string& section) {
  std::vector<std::string> names;
  if (section == "machine") {
    names.push_back("name");
    for (const Whole& whole : wholes()) names.push_back(whole.key);
  }
  for (const Number& number : numbers())
    if (number.section == section) names.push_back(number.key);
  return names;
}

std::string advice(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest(word, known);
  return near.empty() ? "expected " + join(known, ", ", " or ") : "did you mean " + near + "?";
}

/// Whether 0 in the section of a dtype stands for the number in `kernels`.
bool is_of_kernels(const Number& number) {
  const std::vector<std::string> all = names_of_keys("kernels");
  return number.of_dtype && std::find(all.begin(), all.end(), number.key) != all.end();
}

void read_entry(Machine& machine, const std::string& section, const DeckEntry& entry,
                const std::string& name) {
  const std::string place = text(name, ": ", section, ".", entry.name, " = ", entry.value.shown());
  if (section == "machine" && entry.name == "name") {
    require(entry.value.kind == Value::Kind::text && !entry.value.text.empty(), place,
            ": expected text");
    machine.name = entry.value.text;
    return;
  }
  if (section == "machine") {
    for (const Whole& whole : wholes()) {
      if (whole.key != entry.name) continue;
      const auto number = entry.value.integer(0, whole.most);
      require(number.has_value(), place, ": expected an integer from 0 to ", whole.most, ": ",
              whole.what);
      whole.set(machine, *number);
      return;
    }
  }
  for (const Number& number : numbers()) {
    if (number.section != section || number.key != entry.name) continue;
    const double given = entry.value.number;
    require(entry.value.kind == Value::Kind::number && given <= number.most &&
                (given >= least || (given == 0.0 && !number.required)),
            place, ": expected ", number.required ? "" : "0, or ", "a number from ",
            format_number(least), " to ", format_number(number.most), ": ", number.what,
            is_of_kernels(number) ? "; 0: as in kernels" : "");
    number.in(machine) = given * number.unit;
    return;
  }
  throw Error(text(name, ": unknown key ", section, ".", printable(entry.name), "; ",
                   advice(entry.name, names_of_keys(section))));
}

}  // namespace

Machine read_machine(const std::string& file_text, const std::string& name) {
  Machine machine;
  std::set<std::string> given;
  std::vector<std::string> sections = names_of_sections();
  sections.emplace_back("stack");
  const std::vector<DeckSection> found = read_deck(file_text, name, false);
  require(found.size() != 1 || found.front().name != "stack", name,
          ": has the section stack alone, as files of --stack have; expected a machine's file");
  for (const DeckSection& section : found) {
    if (section.name == "stack") {
      machine.stack = read_stack(section, name);
      continue;
    }
    const bool is_known =
        std::find(sections.begin(), sections.end(), section.name) != sections.end();
    require(is_known, name, ": unknown section ", printable(section.name), "; ",
            advice(section.name, sections));
    require(section.value.kind == Value::Kind::section, name, ": ", section.name, " = ",
            section.value.shown(), ": expected keys indented below it");
    for (const DeckEntry& entry : section.entries) {
      read_entry(machine, section.name, entry, name);
      given.insert(section.name + "." + entry.name);
    }
  }
  require(!machine.name.empty(), name, ": machine.name is missing; expected text");
  require(!machine.attention_by_products || machine.cores_per_node == 0, name,
          ": machine.attention_by_products = 1 is of devices, and machine.cores_per_node = ",
          machine.cores_per_node,
          " says that ranks compute on cores; expected one of them to be 0");
  for (const Number& number : numbers())
    require(!number.required || given.count(text(number.section, ".", number.key)) > 0, name, ": ",
            number.section, ".", number.key,
            " is missing; expected a number above 0: ", number.what);
  require(
      machine.fp32.products > 0.0 || machine.bits16.products > 0.0 || machine.fp64.products > 0.0,
      name, ": product_teraflops is missing; expected it in at least one of fp32, bits16, fp64");
  check_limits(machine, name);
  return machine;
}

Processor processor_of(const Machine& machine) {
  using math::KernelForm;
  return processor_with(machine.cores_per_node > 0      ? KernelForm::host
                        : machine.attention_by_products ? KernelForm::device
                                                        : KernelForm::device_on_chip);
}

void require_rates(const Settings& settings, const Machine& machine) {
  const math::ProductDType dtype = settings.precision.products.dtype;
  require(!math::is_8bit(dtype) || machine.bits8.products > 0.0, machine.name,
          ": has no bits8.product_teraflops, the rate of products in 8 bits, with which this deck "
          "computes: precision.products = ",
          math::name(dtype), "; expected auto, or a machine that has it");
}

void require_own_steps(const Machine& machine, const std::string& why) {
  require(is_ostrakon(machine.stack), machine.name, ": stack.name = ", machine.stack.name, ": ",
          why, "; expected a machine file without a stack");
}

std::string write_machine(const Machine& machine, const std::string& source,
                          const std::map<std::string, std::string>& remarks) {
  Machine from = machine;
  std::string made =
      "# " + source + "\nostrakon:\n  machine:\n    name: " + quoted(machine.name) + "\n";
  const auto line = [&](const std::string& key, const std::string& value, const std::string& what) {
    made += text("    ", key, ": ", value, "  # ", what, "\n");
  };
  for (const Whole& whole : wholes())
    line(whole.key, std::to_string(whole.get(machine)), whole.what);
  std::string section = "machine";
  for (const Number& number : numbers()) {
    const double value = number.in(from) / number.unit;
    if (number.of_dtype && value == 0.0) continue;  // as in `kernels`, or no such dtype
    if (section != number.section) {
      section = number.section;
      made += "  " + section + ":\n";
    }
    // Measured numbers have no more than six significant digits.
    const auto remark = remarks.find(text(section, ".", number.key));
    line(number.key, print("%.6g", value),
         remark == remarks.end() ? number.what : text(remark->second, "; ", number.what));
  }
  return made;
}

}  // namespace ostrakon::config
