// Logistic regression by Newton's method, twice: on the cluster and in plain loops.
#pragma once
#include "flights.h"

#include <tilewise/tilewise.h>

namespace demo {

struct Fit {
  std::vector<double> coefficients;
  double loss = 0;  // mean negative log-likelihood
  int iterations = 0;
  double seconds = 0;
};

// Late by more than 15 minutes or not, from polynomial features of the distance and Fourier features of the time.
// The table is read from `npy` by the workers, block by block.
Fit fit_on_cluster(tilewise::Session& session, const std::string& npy);
Fit fit_plainly(const Flights& flights);

}  // namespace demo
