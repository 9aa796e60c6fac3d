// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <cstdlib>
#include <exception>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/trainer/program.hpp>

namespace ostrakon::apps {

int run_program(const Program& program, int argc, char** argv,
                const std::function<int(comm::Communicator& world, const Given& given)>& body) {
  const std::string usage = help(program, Words(argv + 1, argv + argc));
  return train::run_program(
      program.name.c_str(), usage.c_str(), argc, argv, [&](const train::Arguments& arguments) {
        comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
        Given given;
        world.run_collectively([&] { given = parse(program, arguments); });
        return body(world, given);
      });
}

int run_serial_program(const Program& program, int argc, char** argv) {
  ignore_sigxfsz();
  const Words words(argv + 1, argv + argc);
  try {
    // Several processes would write the same files.
    for (const char* ranks : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
      const char* const number = std::getenv(ranks);
      require(number == nullptr || std::atoi(number) <= 1, "started on ",
              number == nullptr ? "" : number, " ranks; expected one");
    }
    const std::string told = answer(program, words);
    std::cout << told;
    int status = 0;
    if (told.empty()) {
      Given given = parse(program, words);
      given.line[0] = argv[0];
      status = command_called(program, given.command).run(given);
    }
    std::cout.flush();
    require(std::cout.good(), "can't write to the standard output");
    return status;
  } catch (const std::exception& error) {
    std::cerr << error_message(program.name, error.what()) + "\n" << std::flush;
    return 1;
  }
}

std::string read_file(const std::string& path) {
  require(!is_folder(path), path, ": is a folder; expected a file");
  // The size is limited, as a data file may be given by mistake.
  return read_text(path, 1 << 20);
}

config::Settings read_deck(comm::Communicator& world, const std::string& path,
                           const std::vector<config::Override>& overrides) {
  std::string text;
  world.run_on_root([&] { text = read_file(path); });
  text = world.broadcast(text, 0);
  config::Settings settings;
  world.run_collectively([&] { settings = config::read_settings(text, path, overrides); });
  return settings;
}

void warn(const char* program, const std::string& path, const std::vector<std::string>& lines) {
  std::cout.flush();
  for (const std::string& line : lines)
    std::cerr << program << ": warning: " << printable(path + ": " + line) << std::endl;
}

std::string counted(std::int64_t count, const std::string& noun) {
  return format_count(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace ostrakon::apps
