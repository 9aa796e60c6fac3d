// SPDX-License-Identifier: Apache-2.0
#include "serial_program.hpp"

#include <cstdlib>
#include <exception>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>

namespace ostrakon::apps {

int run_serial_program(const std::string& name, const std::function<int()>& body) {
  ignore_sigxfsz();
  try {
    // Several processes would write the same files.
    for (const char* ranks : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
      const char* const number = std::getenv(ranks);
      require(number == nullptr || std::atoi(number) <= 1, "started on ",
              number == nullptr ? "" : number, " ranks; expected one");
    }
    const int status = body();
    std::cout.flush();
    require(std::cout.good(), "can't write to the standard output");
    return status;
  } catch (const std::exception& error) {
    std::cerr << error_message(name, error.what()) + "\n" << std::flush;
    return 1;
  }
}

}  // namespace ostrakon::apps
