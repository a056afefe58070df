"""What tokens cost, from the price list that ``genai-prices`` carries. Nothing is looked up on the network.

A price that is not known is ``None``, never zero: a cap on cost cannot be kept with a model that
has no price, and a cap on it is refused.
"""

from __future__ import annotations

from dataclasses import replace

from egg.core.conversation import Usage
from egg.llm.addresses import is_local


def cost(usage: Usage, model: str, provider: str, base_url: str | None = None) -> float | None:
    """US dollars for ``usage``; ``None`` where no price is known, as for every local server.

    With a ``base_url`` the price is that of the server there, not that of the provider whose
    protocol it speaks.
    """
    if base_url is not None and is_local(base_url):
        return None
    import genai_prices  # half a second, which only a run with a model is worth

    counted = genai_prices.Usage(
        input_tokens=max(usage.input_tokens, usage.cache_read_tokens + usage.cache_write_tokens),
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        if base_url is not None:
            price = genai_prices.calc_price(counted, model_ref=model, provider_api_url=base_url)
        else:
            price = genai_prices.calc_price(counted, model_ref=model, provider_id=provider)
    except LookupError:
        return None
    return float(price.total_price)


def price_known(model: str, provider: str, base_url: str | None = None) -> bool:
    return cost(Usage(1, 1), model, provider, base_url) is not None


def worst_cost(
    prompt_tokens: int, output_tokens: int, model: str, provider: str, base_url: str | None = None
) -> float | None:
    """The most that one request can cost: nothing is read from a cache, all of it may be written to one."""
    plain = Usage(prompt_tokens, output_tokens)
    prices = [
        cost(u, model, provider, base_url) for u in (plain, replace(plain, cache_write_tokens=prompt_tokens))
    ]
    return None if None in prices else max(p for p in prices if p is not None)
