"""The largest features among the first neighbours of each point, whose indices are computed from the points.

A point is its own neighbour, unless its distance from itself, by products, is rounded to more than the radius.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, radius, count):
        super().__init__()
        self.radius, self.count = radius, count

    def forward(self, points, features):
        n = points.shape[0]
        squares = points.square().sum(dim=1)
        distances = squares[:, None] + squares[None, :] - 2 * (points @ points.T)
        places = torch.arange(n, device=points.device).repeat(n, 1)
        places[distances > self.radius**2] = n
        places = places.sort(dim=1)[0][:, : self.count]
        places = torch.where(places == n, places[:, :1], places)
        return features[places].amax(dim=1)


count, width = 32, 8


def get_inputs():
    return [torch.randint(-8, 9, (count, 3)) / 128, torch.randn(count, width)]


def get_init_inputs():
    return [0.03, 2]
