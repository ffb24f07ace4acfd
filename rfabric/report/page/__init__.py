"""The part of report.html that moves: one clock, a row of lanes a fabric, the fabric as it is then.

    records.py   what the page shows, out of the run's records: nothing is worked out in the page
    places.py    where nodes stand
    logged.py    your run beside these: what a log tells
    cells.js     with choices.js alone: the page of a store, whose cells have no clock
    clock.html   the markup of the figure, in pages that extend moving.html
    clock.css    its colours: dark, light, printed, narrow
    *.js         draw and move it, with D3: one script in the page, see records.js
    live.js      beside them where the page follows a run that is under way
    server.py    the process that serves that page
    d3.min.js    D3 7.9.2 as npm has it (package `d3`, dist/d3.min.js); ISC licence, d3-licence.txt

D3, for one library gives axes, scales, zoom and curves for the lanes and for the fabric alike, as
SVG, which prints and is read aloud; uPlot draws on a canvas and has no graphs, Cytoscape has no
time axis, ECharts is four times as large.
"""
